"""The queues that are compared, one file for each."""
