"""What every layer uses: names of shards and messages, clocks, locks, and texts for people."""
