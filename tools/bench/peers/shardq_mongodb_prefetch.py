from __future__ import annotations

from .shardq_mongodb import ShardqMongodb


class ShardqMongodbPrefetch(ShardqMongodb):
    name = "shardq (MongoDB), prefetch=4000"
    receives = "the same, with up to 4,000 messages claimed ahead while others are acked"
    queue = "bench-prefetch"

    def receive(self, count: int, batch: int) -> int:
        with self._queue.consumer(prefetch=4_000) as consumer:
            return self._receive(consumer, count, batch)
