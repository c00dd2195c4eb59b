"""The rows of a queue in a SQLite file."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from contextlib import closing
from pathlib import Path

from shardq.sharding.shard import Shard
from shardq.testing import RawEntry, RawQueue, RawState

__all__ = ["read_sqlite"]

_SHARDS = "SELECT shard_key, time_shard, number FROM shard WHERE queue = ?"
_ENTRIES = """
    SELECT e.shard_key, e.bundle_id, e.first, e.count, iif(e.token IS NULL, 'waiting', 'held') FROM entry e
    UNION ALL
    SELECT h.shard_key, b.bundle_id, h.first, h.count, 'processed' FROM history h JOIN bundle b USING (bundle_key)
"""
_BODIES = "SELECT shard_key, bundle_id FROM bundle"
_STRAYS = {
    "entries of no shard": "SELECT 1 FROM entry WHERE shard_key NOT IN (SELECT shard_key FROM shard)",
    "bundles of no shard": "SELECT 1 FROM bundle WHERE shard_key NOT IN (SELECT shard_key FROM shard)",
    "history of no shard": "SELECT 1 FROM history WHERE shard_key NOT IN (SELECT shard_key FROM shard)",
    "history of no bundle": "SELECT 1 FROM history WHERE bundle_key NOT IN (SELECT bundle_key FROM bundle)",
    "entries in another shard than their bundle": """
        SELECT 1 FROM entry e JOIN bundle b USING (bundle_key)
        WHERE e.shard_key <> b.shard_key OR e.bundle_id <> b.bundle_id""",
    "messages beyond the end of their bundle": """
        SELECT 1 FROM entry e JOIN bundle b USING (bundle_key) WHERE e.first + e.count > b.count""",
    "shards of no queue": "SELECT 1 FROM shard WHERE queue NOT IN (SELECT name FROM queue)",
    "keys of no queue": "SELECT 1 FROM dedupe WHERE queue NOT IN (SELECT name FROM queue)",
}


def read_sqlite(path: Path, queue: str) -> RawQueue:
    """Read everything of the queue as of one moment. Strays are those of the whole file: they name no queue."""
    entries: dict[Shard, list[RawEntry]] = defaultdict(list)
    bodies: dict[Shard, list[bytes]] = defaultdict(list)
    with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as file:
        file.execute("BEGIN")
        shards = {key: Shard(queue, *place) for key, *place in file.execute(_SHARDS, (queue,))}
        for key, bundle_id, first, count, state in file.execute(_ENTRIES):
            if key in shards:
                entries[shards[key]].append(RawEntry(bundle_id, first, count, RawState(state)))
        for key, bundle_id in file.execute(_BODIES):
            if key in shards:
                bodies[shards[key]].append(bundle_id)
        counts = {name: len(file.execute(sql).fetchall()) for name, sql in _STRAYS.items()}
    strays = [f"{count} {name}" for name, count in counts.items() if count]
    return RawQueue(entries, bodies, frozenset(shards.values()), strays)
