"""The consumers of a queue: those that live, and for a while those that were seen last."""

from __future__ import annotations

from collections.abc import Sequence

from shardq.base.shard import Shard
from shardq.storage.postgresql import schema
from shardq.storage.postgresql.connections import Address, Sql
from shardq.storage.postgresql.locks import LONG
from shardq.storage.records import REMEMBERED, Registration, Registrations, SeenConsumer, latest_end
from shardq.storage.requests import QueueRecord

__all__ = ["deregister", "expire", "register", "seen"]

# It need not be on the disk: a consumer that is forgotten registers again within seconds.
_REGISTER = f"""
    WITH gate AS MATERIALIZED (
        SELECT set_config('synchronous_commit', 'off', true), set_config('lock_timeout', '{LONG}', true)
    ),
    found AS MATERIALIZED (
        SELECT q.queue_key, q.name, q.settings, q.version FROM gate CROSS JOIN @queue q WHERE q.name = ANY ($1::text[])
        ORDER BY q.name FOR KEY SHARE OF q
    ),
    mine AS (
        INSERT INTO @consumer (queue_key, name, expires_at) SELECT queue_key, $2, $3 FROM found ORDER BY queue_key
        ON CONFLICT (queue_key, name) DO UPDATE SET expires_at = excluded.expires_at
    )
    SELECT (SELECT version FROM @meta), f.*,
        ARRAY(
            SELECT c.name FROM @consumer c
            WHERE c.queue_key = f.queue_key AND c.expires_at > $4 AND c.expires_at <= $5 AND c.name <> $2
        ),
        ARRAY(
            SELECT ARRAY[s.time_shard, s.number] FROM @shard s WHERE s.queue_key = f.queue_key
            ORDER BY s.time_shard, s.number
        )
    FROM gate LEFT JOIN found f ON true
"""
_SEEN = """
    SELECT c.name, c.expires_at FROM @queue q JOIN @consumer c ON c.queue_key = q.queue_key
    WHERE q.name = $1 AND c.expires_at > $2 ORDER BY c.name
"""
_RESIGN = (
    "DELETE FROM @consumer c USING @queue q WHERE q.name = $1 AND c.queue_key = q.queue_key AND c.name = $2"
)
_EXPIRE = """
    DELETE FROM @consumer c USING @queue q WHERE q.name = $1 AND c.queue_key = q.queue_key AND c.expires_at <= $2
"""


def register(
    sql: Sql, names: Sequence[str], consumer: str, lifetime: int, address: Address, now: int
) -> Registrations:
    """Count the consumer among the live ones of each queue; None for one that does not exist."""
    rows = sql.all(_REGISTER, list(names), consumer, now + lifetime, now, latest_end(now, lifetime))
    schema.check_version(rows[0][0] or 0, address)
    found: dict[str, Registration] = {}
    for _, key, name, settings, version, others, shards in rows:
        if key is not None:
            record = QueueRecord(name, settings, version)
            listed = tuple(Shard(name, *each) for each in shards)
            found[name] = Registration(record, tuple(sorted([*others, consumer])), listed)
    return tuple(map(found.get, names))


def deregister(sql: Sql, queue: str, name: str, _now: int) -> None:
    """Count the consumer no longer."""
    sql.run(_RESIGN, queue, name)


def seen(sql: Sql, queue: str, now: int) -> tuple[SeenConsumer, ...]:
    """Return the consumers that are registered, and those that were until not long ago."""
    return tuple(SeenConsumer(*row) for row in sql.all(_SEEN, queue, now - REMEMBERED))


def expire(sql: Sql, queue: str, now: int) -> int:
    """Remove the consumers whose lifetime has been over for long; returns how many."""
    return sql.run(_EXPIRE, queue, now - REMEMBERED)
