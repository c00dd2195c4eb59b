"""Logs of queues: what became of their messages, and what these were acked with."""
