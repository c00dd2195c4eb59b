from __future__ import annotations

from pathlib import Path

from .shardq_queue import ShardqQueue


class ShardqSqlite(ShardqQueue):
    name = "shardq (SQLite)"
    durability = "fsync"
    sends = "fsync before the send returns"
    receives = "bulk reads of 500 under a lease, acked together, fsync for each ack"

    def url(self, folder: Path) -> str:
        return f"sqlite:///{folder}/queue.db"
