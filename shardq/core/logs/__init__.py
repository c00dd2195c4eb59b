"""Logs of queues: the events of their messages, and the results that these were acked with."""
