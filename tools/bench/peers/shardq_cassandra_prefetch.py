from __future__ import annotations

from .shardq_cassandra import ShardqCassandra


class ShardqCassandraPrefetch(ShardqCassandra):
    name = "shardq (Cassandra), prefetch=4000"
    receives = "the same, with up to 4,000 messages claimed ahead while others are acked; its end, up to 0.5 s, counts"
    queue = "bench-prefetch"
    prefetch = 4_000
