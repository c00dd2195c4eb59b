from __future__ import annotations

from pathlib import Path

from ..cassandra_server import url
from .shardq_queue import ShardqQueue


class ShardqCassandra(ShardqQueue):
    name = "shardq (Cassandra)"
    durability = "one node, fsync within 10 s"
    sends = "answered by the node; bundles of 500, 8 in flight"
    receives = "bulk reads under a lease, then acks, both conditional"
    wakes = "looks again after 3 to 250 ms"

    def url(self, folder: Path) -> str:
        return url()
