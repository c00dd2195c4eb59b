"""Small parts that every layer may use: names of shards and messages, clocks, locks, and texts for people."""
