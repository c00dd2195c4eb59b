"""What sending, receiving and settling share: the settings of a queue, its store, repeated calls, counters."""
