from __future__ import annotations

from pathlib import Path

from ..mongodb_server import url
from .shardq_queue import ShardqQueue


class ShardqMongodb(ShardqQueue):
    name = "shardq (MongoDB)"
    durability = "majority of one, journal fsync"
    sends = "answered by the server, majority and journal; bundles of 500, 8 in flight"
    receives = "bulk reads under a lease, then fenced acks, majority and journal"

    def url(self, folder: Path) -> str:
        return url()
