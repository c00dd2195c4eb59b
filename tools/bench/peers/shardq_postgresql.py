from __future__ import annotations

import os
from pathlib import Path

from ..peer import PeerMissing
from .shardq_queue import ShardqQueue

VARIABLE = "SHARDQ_TEST_POSTGRESQL_URL"


class ShardqPostgresql(ShardqQueue):
    name = "shardq (PostgreSQL)"
    durability = "fsync"
    sends = "a commit with its fsync; bundles of 500"
    receives = "bulk reads under a lease, then fenced acks; a commit with its fsync for each"

    def url(self, folder: Path) -> str:
        if VARIABLE not in os.environ:
            raise PeerMissing(f"{VARIABLE} is not set: run it with tools/servers/postgresql.py run")
        return os.environ[VARIABLE]
