"""The shard directory of a queue.

An append holds the row of its shard until it is committed, so that nobody takes that out of the directory meanwhile.
"""

from __future__ import annotations

from typing import NamedTuple

from shardq.base.shard import Shard
from shardq.storage.postgresql import queues
from shardq.storage.postgresql.connections import Sql

__all__ = ["HOME", "HOMES", "RowKeys", "drop_empty", "listing", "pinned", "row_keys_of"]

HOME = """
    SELECT s.shard_key, s.queue_key FROM @queue q JOIN @shard s ON s.queue_key = q.queue_key
    WHERE q.name = $1 AND s.time_shard = $2 AND s.number = $3
"""
"""The keys of a shard: the first three values name it."""

# OFFSET 0 keeps the planner from finding shards by their queue alone. With many queues that seems cheap, but it reads
# all shards of the queue for each named one.
HOMES = """
    (
        SELECT u.n, q.queue_key, u.time_shard, u.number
        FROM unnest($1::text[], $2::int[], $3::int[]) WITH ORDINALITY AS u (queue, time_shard, number, n)
        JOIN @queue q ON q.name = u.queue OFFSET 0
    ) AS a JOIN @shard h ON h.queue_key = a.queue_key AND h.time_shard = a.time_shard AND h.number = a.number
"""
"""The rows ``h`` of many shards, each with its number ``a.n``: the first three values name them."""

_PIN = f"{HOME} FOR KEY SHARE OF s"
_ENTER = """
    WITH entered AS (
        INSERT INTO @shard (queue_key, time_shard, number) VALUES ($1, $2::int, $3::int) ON CONFLICT DO NOTHING
        RETURNING shard_key
    )
    INSERT INTO @watermark (shard_key, late, step) SELECT shard_key, 0, 0 FROM entered
"""
_LIST = """
    SELECT s.time_shard, s.number FROM @queue q JOIN @shard s ON s.queue_key = q.queue_key
    WHERE q.name = $1 ORDER BY s.time_shard, s.number
"""
_HOLD = f"{HOME} FOR UPDATE OF s SKIP LOCKED"
_FORGET = """
    WITH gone AS (
        DELETE FROM @shard WHERE shard_key = $1 AND NOT EXISTS (SELECT FROM @slice WHERE shard_key = $1)
        RETURNING shard_key
    ),
    low AS (DELETE FROM @watermark w USING gone WHERE w.shard_key = gone.shard_key)
    SELECT FROM gone
"""


class RowKeys(NamedTuple):
    """The keys by which the other tables name a shard and its queue."""

    shard_key: int
    queue_key: int


def row_keys_of(sql: Sql, shard: Shard) -> RowKeys | None:
    """Return the keys of a shard that is listed, or None."""
    row = sql.one(HOME, shard.queue, shard.time_shard, shard.number)
    return RowKeys(*row) if row else None


def pinned(sql: Sql, shard: Shard) -> RowKeys:
    """Return the keys of a shard, which is listed until the transaction ends. Raises QueueNotFound."""
    while True:
        if (row := sql.one(_PIN, shard.queue, shard.time_shard, shard.number)) is not None:
            return RowKeys(*row)
        queue_key = queues.pinned(sql, shard.queue)
        if sql.outside is None or not sql.outside.write(_enter, shard, queue_key, durable=False):
            sql.run(_ENTER, queue_key, shard.time_shard, shard.number)


def _enter(sql: Sql, shard: Shard, queue_key: int, _now: int) -> bool:
    """List the shard; False if the queue is not that, or not there yet."""
    if queues.key_of(sql, shard.queue, pins=True) != queue_key:
        return False
    sql.run(_ENTER, queue_key, shard.time_shard, shard.number)
    return True


def listing(sql: Sql, queue: str) -> tuple[Shard, ...]:
    """Return the queue's shards, sorted."""
    return tuple(Shard(queue, *row) for row in sql.all(_LIST, queue))


def drop_empty(sql: Sql, shard: Shard, _now: int) -> bool:
    """Take the shard out of the directory; False when it holds something, is not there, or somebody writes to it."""
    row = sql.one(_HOLD, shard.queue, shard.time_shard, shard.number)
    return row is not None and sql.run(_FORGET, row[0]) == 1
