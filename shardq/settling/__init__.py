"""What becomes of messages that are held: acked, released, extended, moved."""
