"""Settling held messages: ack, release, extend, move."""
