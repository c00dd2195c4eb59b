"""The rows of a queue in a schema of PostgreSQL."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import psycopg
from psycopg.sql import SQL, Identifier

from shardq.base.shard import Shard
from shardq.testing import RawEntry, RawQueue, RawState

__all__ = ["read_postgresql"]

_SHARDS = "SELECT shard_key, time_shard, number FROM {}.shard JOIN {}.queue USING (queue_key) WHERE name = %s"
_ENTRIES = """
    SELECT shard_key, bundle_id, first, count,
        CASE WHEN processed_at IS NOT NULL THEN 'processed' WHEN token IS NULL THEN 'waiting' ELSE 'held' END
    FROM {}.slice WHERE shard_key > 0
"""
_BODIES = """
    SELECT DISTINCT shard_key, bundle_id FROM {}.slice s LEFT JOIN {}.bundle_data d USING (shard_key, bundle_id)
    WHERE coalesce(s.data, d.data) IS NOT NULL
"""
_STRAYS = {
    "slices of no shard": """
        SELECT FROM {}.slice WHERE shard_key > 0 AND shard_key NOT IN (SELECT shard_key FROM {}.shard)""",
    "data of no bundle": """
        SELECT FROM {}.bundle_data d WHERE d.shard_key > 0
        AND NOT EXISTS (SELECT FROM {}.slice s WHERE s.shard_key = d.shard_key AND s.bundle_id = d.bundle_id)""",
    "slices with data in two places": """
        SELECT FROM {}.slice JOIN {}.bundle_data d USING (shard_key, bundle_id)
        WHERE shard_key > 0 AND slice.data IS NOT NULL""",
    "bundles of one queue in two shards": """
        SELECT FROM {}.slice JOIN {}.shard USING (shard_key) GROUP BY queue_key, bundle_id
        HAVING count(DISTINCT shard_key) > 1""",
    "processed slices that are held": """
        SELECT FROM {}.slice WHERE shard_key > 0 AND processed_at IS NOT NULL AND token IS NOT NULL""",
    "messages beyond the end of their bundle": "SELECT FROM {}.slice WHERE first + count > sent_count",
    "shards of no queue": "SELECT FROM {}.shard WHERE queue_key NOT IN (SELECT queue_key FROM {}.queue)",
    "keys of no queue": "SELECT FROM {}.key WHERE queue_key NOT IN (SELECT queue_key FROM {}.queue)",
    "consumers of no queue": "SELECT FROM {}.consumer WHERE queue_key NOT IN (SELECT queue_key FROM {}.queue)",
    "first slices of a group that are behind others": """
        SELECT FROM {}.slice s WHERE message_group <> '' AND processed_at IS NULL AND due >= 2305843009213693952
        AND NOT EXISTS (
            SELECT FROM {}.slice e WHERE e.shard_key = s.shard_key AND e.message_group = s.message_group
            AND e.processed_at IS NULL AND e.place < s.place
        )""",
    "groups with several first slices": """
        SELECT FROM {}.slice
        WHERE message_group <> '' AND processed_at IS NULL AND due < 2305843009213693952 AND shard_key > 0
        GROUP BY shard_key, message_group HAVING count(*) > 1""",
}


def read_postgresql(conninfo: str, schema: str, queue: str) -> RawQueue:
    """Read everything of the queue as of one moment. Strays are those of the whole schema: they name no queue."""
    entries: dict[Shard, list[RawEntry]] = defaultdict(list)
    bodies: dict[Shard, list[bytes]] = defaultdict(list)
    with psycopg.connect(conninfo) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ

        def rows(statement: str, *values: object) -> list[tuple[Any, ...]]:
            name = Identifier(schema)
            text = SQL(statement).format(*[name] * statement.count("{}"))
            return connection.execute(text, values or None).fetchall()

        shards = {key: Shard(queue, *place) for key, *place in rows(_SHARDS, queue)}
        for key, bundle_id, first, count, state in rows(_ENTRIES):
            if key in shards:
                entries[shards[key]].append(RawEntry(bundle_id.bytes, first, count, RawState(state)))
        for key, bundle_id in rows(_BODIES):
            if key in shards:
                bodies[shards[key]].append(bundle_id.bytes)
        counts = {name: len(rows(sql)) for name, sql in _STRAYS.items()}
    strays = [f"{count} {name}" for name, count in counts.items() if count]
    return RawQueue(entries, bodies, frozenset(shards.values()), strays)
