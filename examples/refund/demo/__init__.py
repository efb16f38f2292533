"""The demo: the refund route on a whole stack, with everything killed once."""
