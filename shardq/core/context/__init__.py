"""The parts that sending, receiving and settling share: a queue's settings, its store, repeated calls, counters."""
