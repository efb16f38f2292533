"""What an agent may remember, on whose authority, and what it may do with it."""
