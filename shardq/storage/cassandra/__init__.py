"""Queues in a Cassandra keyspace, a wide row for each shard."""
