"""What became of a message: the logs of the queues that keep events, and reading a message's story out of them."""
