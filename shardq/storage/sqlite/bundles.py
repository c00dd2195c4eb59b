"""Bundles: stored once, deleted with their last message."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from shardq.storage.requests import Append, Bundle
from shardq.storage.sqlite import directory, queues

__all__ = ["MEMORY", "append", "finish", "prune"]

MEMORY = 15 * 60 * 1_000_000
"""For how long the id of a finished bundle is known, in microseconds."""

_LAST = "SELECT coalesce(max(bundle_key), 0) FROM bundle"
_INSERT = """
    INSERT INTO bundle (bundle_id, shard_key, priority, due, enqueued_at, count, data)
    SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7
    WHERE NOT EXISTS (
        SELECT 1 FROM finished WHERE bundle_id = ?1 AND finished_at > ?8
        AND incarnation = (SELECT incarnation FROM queue WHERE name = ?9)
    )
    ON CONFLICT (bundle_id) DO NOTHING
"""
_ENTRIES = """
    INSERT INTO entry (shard_key, priority, due, bundle_key, bundle_id, first, count, deliveries, enqueued_at)
    SELECT shard_key, priority, due, bundle_key, bundle_id, 0, count, 0, enqueued_at
    FROM bundle WHERE bundle_key > ?
"""
_UNUSED = """
    bundle_id = ?1
    AND NOT EXISTS (SELECT 1 FROM entry WHERE entry.bundle_id = ?1)
    AND NOT EXISTS (SELECT 1 FROM history WHERE history.bundle_key = bundle.bundle_key)
"""
_REMEMBER = f"""
    INSERT OR REPLACE INTO finished (bundle_id, finished_at, incarnation)
    SELECT bundle_id, ?2, (SELECT incarnation FROM queue WHERE name = ?3) FROM bundle WHERE {_UNUSED}
"""
_DELETE = f"DELETE FROM bundle WHERE {_UNUSED}"
_OLDEST = "SELECT finished_at FROM finished ORDER BY finished_key LIMIT 1"
_PRUNE = """
    DELETE FROM finished WHERE finished_at <= ?1
    AND finished_key IN (SELECT finished_key FROM finished ORDER BY finished_key LIMIT ?2)
"""


def append(sql: sqlite3.Connection, request: Append, now: int) -> None:
    """Store the bundles that are not known, each with one ready entry; raises QueueNotFound."""
    queue = request.shard.queue
    queues.announce(sql, queue)
    shard_key = directory.enter(sql, request.shard)
    (last,) = sql.execute(_LAST).fetchone()
    sql.executemany(_INSERT, (_row(bundle, shard_key, queue, now) for bundle in request.bundles))
    sql.execute(_ENTRIES, (last,))


def _row(bundle: Bundle, shard_key: int, queue: str, now: int) -> tuple[object, ...]:
    head = (bundle.id, shard_key, bundle.priority, bundle.due, bundle.enqueued_at, bundle.count)
    return (*head, bundle.data, now - MEMORY, queue)


def finish(sql: sqlite3.Connection, queue: str, bundle_ids: Iterable[bytes], now: int) -> None:
    """Delete those of the queue's bundles that neither an entry nor the history refers to, and remember their ids."""
    ids = tuple(bundle_ids)
    sql.executemany(_REMEMBER, ((bundle_id, now, queue) for bundle_id in ids))
    sql.executemany(_DELETE, ((bundle_id,) for bundle_id in ids))
    prune(sql, now, 2 * len(ids))


def prune(sql: sqlite3.Connection, now: int, limit: int) -> int:
    """Forget up to ``limit`` ids that were remembered for long enough; returns how many.

    Every finish forgets more than it adds, which bounds them even where nobody sweeps.
    """
    oldest = sql.execute(_OLDEST).fetchone()
    if oldest is None or oldest[0] > now - MEMORY:
        return 0
    return sql.execute(_PRUNE, (now - MEMORY, limit)).rowcount
