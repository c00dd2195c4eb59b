"""The shard directory of a queue."""

from __future__ import annotations

import sqlite3

from shardq.base.shard import Shard

__all__ = ["SQL_KEY", "drop_empty", "enter", "key_of", "keys_of", "listing"]

SQL_KEY = "SELECT shard_key FROM [shard] WHERE queue = ? AND time_shard = ? AND number = ?"
_INSERT = "INSERT INTO [shard] (queue, time_shard, number) VALUES (?, ?, ?)"
_LIST = "SELECT time_shard, number FROM [shard] WHERE queue = ? ORDER BY time_shard, number"
_KEYS = "SELECT shard_key FROM [shard] WHERE queue = ?"
_FORGET = """
    DELETE FROM [shard] WHERE shard_key = ?1
    AND NOT EXISTS (SELECT 1 FROM [slice] WHERE shard_key = ?1 AND processed_at IS NULL)
    AND NOT EXISTS (SELECT 1 FROM [slice] WHERE shard_key = ?1 AND processed_at IS NOT NULL)
"""


def key_of(sql: sqlite3.Connection, shard: Shard) -> int | None:
    """Return the key by which the other tables name the shard. It is valid within the transaction only."""
    row = sql.execute(SQL_KEY, (shard.queue, shard.time_shard, shard.number)).fetchone()
    return int(row[0]) if row else None


def enter(sql: sqlite3.Connection, shard: Shard) -> int:
    """Put a shard into the directory, and return its key."""
    key = sql.execute(_INSERT, (shard.queue, shard.time_shard, shard.number)).lastrowid
    assert key is not None
    return key


def listing(sql: sqlite3.Connection, queue: str) -> tuple[Shard, ...]:
    """Return the queue's shards, sorted."""
    return tuple(Shard(queue, *row) for row in sql.execute(_LIST, (queue,)))


def keys_of(sql: sqlite3.Connection, queue: str) -> tuple[int, ...]:
    """Return the keys of the queue's shards."""
    return tuple(key for (key,) in sql.execute(_KEYS, (queue,)))


def drop_empty(sql: sqlite3.Connection, shard: Shard) -> bool:
    """Take the shard out of the directory; False when it holds something or is not there."""
    return sql.execute(_FORGET, (key_of(sql, shard),)).rowcount == 1
