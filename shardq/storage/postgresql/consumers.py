"""The consumers of a queue: those that live, and for a while those that were seen last."""

from __future__ import annotations

from collections.abc import Sequence

from shardq.storage.postgresql import directory, schema
from shardq.storage.postgresql.connections import Address, Sql
from shardq.storage.records import REMEMBERED, Registration, Registrations, SeenConsumer
from shardq.storage.requests import QueueRecord

__all__ = ["deregister", "expire", "register", "seen"]

_VERSION = "SELECT version FROM @meta"
_RECORDS = """
    SELECT queue_key, name, settings, version FROM @queue WHERE name = ANY ($1::text[]) ORDER BY name FOR KEY SHARE
"""
_ENLIST = """
    INSERT INTO @consumer (queue_key, name, expires_at) SELECT k, $2, $3 FROM unnest($1::bigint[]) AS k ORDER BY k
    ON CONFLICT (queue_key, name) DO UPDATE SET expires_at = excluded.expires_at
"""
_LIVE = """
    SELECT queue_key, name FROM @consumer WHERE queue_key = ANY ($1::bigint[]) AND expires_at > $2
    ORDER BY queue_key, name
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
    row = sql.one(_VERSION)
    schema.check_version(row[0] if row else 0, address)
    records = {name: (key, QueueRecord(name, *rest)) for key, name, *rest in sql.all(_RECORDS, list(names))}
    if not records:
        return (None,) * len(names)
    keys = sorted(key for key, _ in records.values())
    sql.run(_ENLIST, keys, consumer, now + lifetime)
    live: dict[int, list[str]] = {}
    for key, name in sql.all(_LIVE, keys, now):
        live.setdefault(key, []).append(name)

    def registered(name: str) -> Registration | None:
        if name not in records:
            return None
        key, record = records[name]
        return Registration(record, tuple(live.get(key, ())), directory.listing_of(sql, name, key))

    return tuple(map(registered, names))


def deregister(sql: Sql, queue: str, name: str, _now: int) -> None:
    """Count the consumer no longer."""
    sql.run(_RESIGN, queue, name)


def seen(sql: Sql, queue: str, now: int) -> tuple[SeenConsumer, ...]:
    """Return the consumers that are registered, and those that were until not long ago."""
    return tuple(SeenConsumer(*row) for row in sql.all(_SEEN, queue, now - REMEMBERED))


def expire(sql: Sql, queue: str, now: int) -> int:
    """Remove the consumers whose lifetime has been over for long; returns how many."""
    return sql.run(_EXPIRE, queue, now - REMEMBERED)
