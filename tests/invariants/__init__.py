"""What must hold after any history, found by random ones."""
