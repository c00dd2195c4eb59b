"""How messages are claimed, kept from those that must not get them, and handed out."""
