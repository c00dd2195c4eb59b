from __future__ import annotations

from .shardq_mongodb import ShardqMongodb


class ShardqMongodbPrefetch(ShardqMongodb):
    name = "shardq (MongoDB), prefetch=4000"
    receives = "the same, with up to 4,000 messages claimed ahead while others are acked; its end, up to 0.5 s, counts"
    queue = "bench-prefetch"
    prefetch = 4_000
