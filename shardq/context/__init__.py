"""What everything that works on one queue shares: its settings, its store, repeated calls, counters."""
