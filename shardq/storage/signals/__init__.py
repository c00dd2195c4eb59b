"""Waking consumers that wait for messages: the common part of the stores' ways of signalling."""
