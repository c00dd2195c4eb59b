"""The live consumers of a queue."""

from __future__ import annotations

import sqlite3

from shardq.storage.sqlite import queues

__all__ = ["enlist", "expire", "resign"]

_ENLIST = """
    INSERT INTO consumer (queue, name, expires_at) VALUES (?1, ?2, ?3)
    ON CONFLICT (queue, name) DO UPDATE SET expires_at = ?3
"""
_LIVE = "SELECT name FROM consumer WHERE queue = ? AND expires_at > ? ORDER BY name"
_RESIGN = "DELETE FROM consumer WHERE queue = ? AND name = ?"
_EXPIRE = "DELETE FROM consumer WHERE queue = ? AND expires_at <= ?"


def enlist(sql: sqlite3.Connection, queue: str, name: str, lifetime: int, now: int) -> tuple[str, ...]:
    """Count the consumer among the live ones and return them all, sorted. Raises QueueNotFound."""
    queues.require(sql, queue)
    sql.execute(_ENLIST, (queue, name, now + lifetime))
    return tuple(live for (live,) in sql.execute(_LIVE, (queue, now)))


def resign(sql: sqlite3.Connection, queue: str, name: str) -> None:
    """Count the consumer no longer."""
    sql.execute(_RESIGN, (queue, name))


def expire(sql: sqlite3.Connection, queue: str, now: int) -> int:
    """Remove the consumers whose lifetime is over; returns how many."""
    return sql.execute(_EXPIRE, (queue, now)).rowcount
