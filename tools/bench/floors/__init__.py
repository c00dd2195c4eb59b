"""What the bare statements of a queue with leases take, beside shardq: how fast a queue could be at most."""
