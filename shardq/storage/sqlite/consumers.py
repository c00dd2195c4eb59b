"""The consumers of a queue: those that live, and for a while those that were seen last."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from shardq.storage.records import REMEMBERED, Registration, Registrations, SeenConsumer, latest_end
from shardq.storage.sqlite import directory, queues

__all__ = ["deregister", "expire", "register", "seen"]

_REGISTER = """
    INSERT INTO [consumer] (queue, name, expires_at) VALUES (?1, ?2, ?3)
    ON CONFLICT (queue, name) DO UPDATE SET expires_at = ?3
"""
_LIVE = "SELECT name FROM [consumer] WHERE queue = ? AND expires_at > ? AND expires_at <= ? ORDER BY name"
_SEEN = "SELECT name, expires_at FROM [consumer] WHERE queue = ? AND expires_at > ? ORDER BY name"
_RESIGN = "DELETE FROM [consumer] WHERE queue = ? AND name = ?"
_EXPIRE = "DELETE FROM [consumer] WHERE queue = ? AND expires_at <= ?"


def register(
    sql: sqlite3.Connection, names: Sequence[str], consumer: str, lifetime: int, now: int
) -> Registrations:
    """Count the consumer among the live ones of each queue; None for one that does not exist."""
    return tuple(_register(sql, name, consumer, lifetime, now) for name in names)


def _register(
    sql: sqlite3.Connection, queue: str, consumer: str, lifetime: int, now: int
) -> Registration | None:
    record = queues.load(sql, queue)
    if record is None:
        return None
    sql.execute(_REGISTER, (queue, consumer, now + lifetime))
    live = tuple(each for (each,) in sql.execute(_LIVE, (queue, now, latest_end(now, lifetime))))
    return Registration(record, live, directory.listing(sql, queue))


def deregister(sql: sqlite3.Connection, queue: str, name: str) -> None:
    """Count the consumer no longer."""
    sql.execute(_RESIGN, (queue, name))


def seen(sql: sqlite3.Connection, queue: str, now: int) -> tuple[SeenConsumer, ...]:
    """Return the consumers that are registered, and those that were until not long ago."""
    return tuple(SeenConsumer(*row) for row in sql.execute(_SEEN, (queue, now - REMEMBERED)))


def expire(sql: sqlite3.Connection, queue: str, now: int) -> int:
    """Remove the consumers whose lifetime has been over for long; returns how many."""
    return sql.execute(_EXPIRE, (queue, now - REMEMBERED)).rowcount
