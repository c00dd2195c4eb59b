"""Large bodies: bodies that are stored in parts, beside the message that they belong to."""
