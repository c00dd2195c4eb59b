"""The rows of a queue in a SQLite file."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from contextlib import closing
from pathlib import Path

from shardq.base.shard import Shard
from shardq.testing import RawEntry, RawQueue, RawState

__all__ = ["open_tables", "read_sqlite"]

_TABLES = (
    *("queue", "shard", "slice", "bundle_data", "finished_id", "finished_period"),
    *("moved", "dedupe", "consumer", "finishing"),
)
_SHARDS = "SELECT shard_key, time_shard, number FROM shard WHERE queue = ?"
_ENTRIES = """
    SELECT shard_key, bundle_id, first, count,
        iif(processed_at IS NOT NULL, 'processed', iif(token IS NULL, 'waiting', 'held'))
    FROM slice
"""
_BODIES = """
    SELECT DISTINCT shard_key, bundle_id FROM slice LEFT JOIN bundle_data USING (data_key)
    WHERE coalesce(slice.data, bundle_data.data) IS NOT NULL
"""
_STRAYS = {
    "slices of no shard": "SELECT 1 FROM slice WHERE shard_key NOT IN (SELECT shard_key FROM shard)",
    "data of no bundle": """
        SELECT 1 FROM bundle_data WHERE data_key NOT IN (SELECT data_key FROM slice WHERE data_key IS NOT NULL)""",
    "slices with data in two places": "SELECT 1 FROM slice WHERE data IS NOT NULL AND data_key IS NOT NULL",
    "bundles with the data of another one": """
        SELECT 1 FROM slice WHERE data_key IS NOT NULL GROUP BY data_key HAVING count(DISTINCT bundle_id) > 1""",
    "bundles in two shards": "SELECT 1 FROM slice GROUP BY bundle_id HAVING count(DISTINCT shard_key) > 1",
    "processed slices that are held": "SELECT 1 FROM slice WHERE processed_at IS NOT NULL AND token IS NOT NULL",
    "messages beyond the end of their bundle": "SELECT 1 FROM slice WHERE first + count > sent_count",
    "remembered ids of no period": """
        SELECT 1 FROM finished_id WHERE period NOT IN (SELECT period FROM finished_period)""",
    "shards of no queue": "SELECT 1 FROM shard WHERE queue NOT IN (SELECT name FROM queue)",
    "keys of no queue": "SELECT 1 FROM dedupe WHERE queue NOT IN (SELECT name FROM queue)",
}


def open_tables(path: Path, prefix: str = "") -> sqlite3.Connection:
    """Connect to a file of queues, or to the database of an application, in which their tables have a prefix.

    They can be read by their own names.
    """
    file = sqlite3.connect(path, timeout=30, isolation_level=None)
    if prefix:
        for table in _TABLES:
            file.execute(f"CREATE TEMP VIEW {table} AS SELECT * FROM main.{prefix}{table}")
    return file


def read_sqlite(path: Path, queue: str, prefix: str = "") -> RawQueue:
    """Read everything of the queue as of one moment. Strays are those of the whole file: they name no queue."""
    entries: dict[Shard, list[RawEntry]] = defaultdict(list)
    bodies: dict[Shard, list[bytes]] = defaultdict(list)
    with closing(open_tables(path, prefix)) as file:
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
