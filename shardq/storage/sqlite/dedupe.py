"""Dedupe keys: which message a key stands for, for a time."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from shardq.storage.requests import DedupeEntry
from shardq.storage.sqlite import queues

__all__ = ["confirm", "expire", "reserve"]

_RESERVE = """
    INSERT INTO dedupe (queue, key, message_id, confirmed, expires_at) VALUES (?1, ?2, ?3, 0, ?4)
    ON CONFLICT (queue, key) DO UPDATE
    SET message_id = ?3, confirmed = 0, expires_at = ?4 WHERE expires_at <= ?5
"""
_STANDING = "SELECT key, message_id, confirmed FROM dedupe WHERE queue = ? AND key = ?"
_CONFIRM = "UPDATE dedupe SET confirmed = 1 WHERE queue = ? AND key = ? AND message_id = ?"
_EXPIRE = """
    DELETE FROM dedupe WHERE queue = ?1
    AND key IN (SELECT key FROM dedupe WHERE queue = ?1 AND expires_at <= ?2 LIMIT ?3)
"""


def reserve(
    sql: sqlite3.Connection, queue: str, entries: Sequence[DedupeEntry], window: int, now: int
) -> tuple[DedupeEntry, ...]:
    """Reserve what is free; returns what now stands for each key. Raises QueueNotFound."""
    queues.require(sql, queue)
    sql.executemany(_RESERVE, ((queue, entry.key, entry.message_id, now + window, now) for entry in entries))
    return tuple(_standing(sql, queue, entry.key) for entry in entries)


def _standing(sql: sqlite3.Connection, queue: str, key: str) -> DedupeEntry:
    key, message_id, confirmed = sql.execute(_STANDING, (queue, key)).fetchone()
    return DedupeEntry(key, message_id, bool(confirmed))


def confirm(sql: sqlite3.Connection, queue: str, entries: Sequence[DedupeEntry]) -> None:
    """Mark the messages of the entries as stored."""
    sql.executemany(_CONFIRM, ((queue, entry.key, entry.message_id) for entry in entries))


def expire(sql: sqlite3.Connection, queue: str, limit: int, now: int) -> int:
    """Remove up to ``limit`` keys whose window is over; returns how many."""
    return sql.execute(_EXPIRE, (queue, now, limit)).rowcount
