"""Removing messages whatever their state: one, a shard's, a queue's; and those of the history."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from shardq.sharding.shard import Shard
from shardq.storage.sqlite import bundles, directory, queues
from shardq.storage.sqlite.slicing import cut_out

__all__ = ["drop", "expire", "purge", "remove", "remove_processed"]

_DELETE_ENTRY = "DELETE FROM entry WHERE entry_key = ?"
_MESSAGES = "SELECT coalesce(sum(count), 0) FROM entry WHERE shard_key = ?"
# The bundles of a shard's entries but for those that the history needs.
_PURGED = """
    bundle_key IN (SELECT bundle_key FROM entry WHERE shard_key = ?1)
    AND NOT EXISTS (SELECT 1 FROM history WHERE history.bundle_key = bundle.bundle_key)
"""
_REMEMBER = f"""
    INSERT OR REPLACE INTO finished (bundle_id, finished_at, incarnation)
    SELECT bundle_id, ?2, ?3 FROM bundle WHERE {_PURGED}
"""
_DELETE_BUNDLES = f"DELETE FROM bundle WHERE {_PURGED}"
_DELETE_ENTRIES = "DELETE FROM entry WHERE shard_key = ?"
_DROP_SHARD = (
    "DELETE FROM bundle WHERE bundle_key IN (SELECT bundle_key FROM entry WHERE shard_key = ?)",
    "DELETE FROM bundle WHERE bundle_key IN (SELECT bundle_key FROM history WHERE shard_key = ?)",
    "DELETE FROM entry WHERE shard_key = ?",
    "DELETE FROM history WHERE shard_key = ?",
)
_DROP = (
    "DELETE FROM shard WHERE queue = ?",
    "DELETE FROM dedupe WHERE queue = ?",
    "DELETE FROM consumer WHERE queue = ?",
)
_DROP_QUEUE = "DELETE FROM queue WHERE name = ?"

_COVERING = """
    SELECT history_key, first, count FROM history
    WHERE bundle_key = (SELECT bundle_key FROM bundle WHERE bundle_id = ?1 AND shard_key = ?2)
    AND first <= ?3 ORDER BY first DESC LIMIT 1
"""
_TAIL = """
    INSERT INTO history (shard_key, processed_at, bundle_key, first, count, deliveries)
    SELECT shard_key, processed_at, bundle_key, ?2, first + count - ?2, deliveries
    FROM history WHERE history_key = ?1
"""
_HEAD = "UPDATE history SET count = ?2 WHERE history_key = ?1"
_DELETE = "DELETE FROM history WHERE history_key = ?"
_OLD = """
    SELECT history_key, bundle_id FROM shard JOIN history USING (shard_key) JOIN bundle USING (bundle_key)
    WHERE queue = ? AND processed_at < ? LIMIT ?
"""


def remove(sql: sqlite3.Connection, shard: Shard, bundle_id: bytes, position: int, now: int) -> bool:
    """Remove one message, out of the history too; False when it is not stored."""
    shard_key = directory.key_of(sql, shard)
    if shard_key is None:
        return False
    entry_key = cut_out(sql, shard_key, bundle_id, position)
    if entry_key is not None:
        sql.execute(_DELETE_ENTRY, (entry_key,))
    elif not remove_processed(sql, shard_key, bundle_id, position):
        return False
    bundles.finish(sql, shard.queue, (bundle_id,), now)
    return True


def purge(sql: sqlite3.Connection, shard: Shard, now: int) -> int:
    """Remove every entry of the shard; returns how many messages they held."""
    shard_key = directory.key_of(sql, shard)
    if shard_key is None:
        return 0
    (messages,) = sql.execute(_MESSAGES, (shard_key,)).fetchone()
    sql.execute(_REMEMBER, (shard_key, now, queues.incarnation(sql, shard.queue)))
    sql.execute(_DELETE_BUNDLES, (shard_key,))
    sql.execute(_DELETE_ENTRIES, (shard_key,))
    return int(messages)


def drop(sql: sqlite3.Connection, queue: str) -> bool:
    """Remove the queue with all that it holds; False when there is none.

    What is remembered of its finished bundles belongs to its incarnation, and counts no more.
    """
    if not sql.execute(_DROP_QUEUE, (queue,)).rowcount:
        return False
    for shard_key in directory.keys_of(sql, queue):
        for statement in _DROP_SHARD:
            sql.execute(statement, (shard_key,))
    for statement in _DROP:
        sql.execute(statement, (queue,))
    return True


def remove_processed(sql: sqlite3.Connection, shard_key: int, bundle_id: bytes, position: int) -> bool:
    """Take one message out of the history; False when it is not in it."""
    row = sql.execute(_COVERING, (bundle_id, shard_key, position)).fetchone()
    if row is None or row[1] + row[2] <= position:
        return False
    key, first, count = row
    if position + 1 < first + count:
        sql.execute(_TAIL, (key, position + 1))
    if first < position:
        sql.execute(_HEAD, (key, position - first))
    else:
        sql.execute(_DELETE, (key,))
    return True


def expire(sql: sqlite3.Connection, queue: str, before: int, limit: int, now: int) -> int:
    """Give up to ``limit`` slices up that were processed before a moment; returns how many."""
    old: Sequence[tuple[int, bytes]] = sql.execute(_OLD, (queue, before, limit)).fetchall()
    sql.executemany(_DELETE, ((key,) for key, _ in old))
    bundles.finish(sql, queue, dict.fromkeys(bundle_id for _, bundle_id in old), now)
    return len(old)
