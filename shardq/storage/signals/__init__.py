"""Waking those who wait for messages: what the stores' ways of signalling have in common."""
