"""How messages come into a queue."""
