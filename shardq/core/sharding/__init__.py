"""Which shard to write to, which to read next, and whose shard is whose."""
