"""Taking messages out whoever holds them: one, a shard's, a queue's."""

from __future__ import annotations

import sqlite3

from shardq.sharding.shard import Shard
from shardq.storage.sqlite import bundles, directory, queues
from shardq.storage.sqlite.carving import cut_out
from shardq.storage.sqlite.history import remove_processed

__all__ = ["drop", "purge", "remove"]

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
