from __future__ import annotations

import os
from pathlib import Path

from .shardq_queue import ShardqQueue


class ShardqPostgresql(ShardqQueue):
    name = "shardq (PostgreSQL)"
    durability = "fsync"
    sends = "a commit with its fsync; bundles of 500"
    receives = "bulk reads under a lease, then fenced acks; a commit with its fsync for each"

    def url(self, folder: Path) -> str:
        return os.environ["SHARDQ_TEST_POSTGRESQL_URL"]
