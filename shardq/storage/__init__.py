"""The storage port, and one folder for each store that implements it."""
