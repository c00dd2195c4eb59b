"""Removing messages in any state: one, a shard's, a queue's; and those of the history.

A sweep removes all that no operation needs any more.
"""

from __future__ import annotations

import sqlite3

from shardq.base.shard import Shard
from shardq.storage.requests import QueueRecord, Sweep
from shardq.storage.sqlite import bundles, claims, consumers, dedupe, directory, groups, settling
from shardq.storage.sqlite.slicing import cut_out

__all__ = ["drop", "expire", "purge", "remove", "sweep"]

_MESSAGES = "SELECT coalesce(sum(count), 0) FROM [slice] WHERE shard_key = ? AND processed_at IS NULL"
_DROP_SHARD = tuple(
    statement.format(f"shard_key = ? AND processed_at {state}")
    for state in ("IS NULL", "IS NOT NULL")
    for statement in (
        "DELETE FROM [bundle_data] WHERE data_key IN (SELECT data_key FROM [slice] WHERE {} AND data_key IS NOT NULL)",
        "DELETE FROM [slice] WHERE {}",
    )
)
_DROP = (
    "DELETE FROM [shard] WHERE queue = ?",
    "DELETE FROM [dedupe] WHERE queue = ?",
    "DELETE FROM [consumer] WHERE queue = ?",
)
_DROP_QUEUE = "DELETE FROM [queue] WHERE name = ?"
_DROP_SEEN_QUEUE = "DELETE FROM [queue] WHERE name = ? AND version = ? AND settings = ?"
_OLD = """
    SELECT slice_key FROM [shard] JOIN [slice] INDEXED BY [slice_by_moment] USING (shard_key)
    WHERE queue = ? AND processed_at < ? LIMIT ?
"""


def remove(sql: sqlite3.Connection, shard: Shard, bundle_id: bytes, position: int, now: int) -> bool:
    """Remove one message, out of the history too; False when it is not stored."""
    shard_key = directory.key_of(sql, shard)
    if shard_key is None:
        return False
    slice_key = cut_out(sql, shard_key, bundle_id, position)
    if slice_key is None:
        return False
    over = groups.groups_of(sql, [slice_key]) if shard.is_grouped else []
    bundles.delete(sql, shard.queue, [slice_key], now)
    groups.arm(sql, shard.queue, shard_key, over)
    return True


def purge(sql: sqlite3.Connection, shard: Shard, now: int) -> int:
    """Remove every slice of the shard but the history; returns how many messages they held."""
    shard_key = directory.key_of(sql, shard)
    if shard_key is None:
        return 0
    (messages,) = sql.execute(_MESSAGES, (shard_key,)).fetchone()
    bundles.delete_all(sql, shard.queue, shard_key, now)
    return int(messages)


def drop(sql: sqlite3.Connection, queue: str, seen: QueueRecord | None = None) -> bool:
    """Remove the queue with all that it holds; False when there is none, or its record is not as it was ``seen``.

    The remembered ids of its finished bundles belong to its incarnation, and count no more.
    """
    dropped = (
        sql.execute(_DROP_QUEUE, (queue,))
        if seen is None
        else sql.execute(_DROP_SEEN_QUEUE, (queue, seen.version, seen.settings))
    )
    if not dropped.rowcount:
        return False
    for shard_key in directory.keys_of(sql, queue):
        for statement in _DROP_SHARD:
            sql.execute(statement, (shard_key,))
    for statement in _DROP:
        sql.execute(statement, (queue,))
    return True


def expire(sql: sqlite3.Connection, queue: str, before: int, limit: int, now: int) -> int:
    """Give up to ``limit`` slices up that were processed before a moment; returns how many."""
    old = [key for (key,) in sql.execute(_OLD, (queue, before, limit))]
    if old:
        bundles.delete(sql, queue, old, now)
    return len(old)


_LIMIT = 1000


def sweep(sql: sqlite3.Connection, request: Sweep, now: int) -> int:
    """Remove up to 1,000 things of each kind; returns how many. Transactions leave no orphans to look for."""
    return (
        expire(sql, request.queue, request.history_before, _LIMIT, now)
        + dedupe.expire(sql, request.queue, _LIMIT, now)
        + consumers.expire(sql, request.queue, now)
        + bundles.prune(sql, now, _LIMIT)
        + settling.prune_moves(sql, now, _LIMIT)
        + claims.expire(sql, now)
    )
