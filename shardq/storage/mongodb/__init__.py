"""The MongoDB store: queues in one database, a collection for each shard."""
