"""The shard's name, the ring of time shards, which shard to write and which to read next."""
