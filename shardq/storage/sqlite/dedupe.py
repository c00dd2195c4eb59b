"""Dedupe keys: which message a key stands for, for a time. Unique keys are stored in the same table, and for ever."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from shardq.storage.keys import UNIQUE_END, UNIQUE_PREFIX, KeyChange, KeyEntry
from shardq.storage.requests import DedupeEntry
from shardq.storage.sqlite import queues
from shardq.storage.sqlite.session import Session

__all__ = ["KeyMethods", "expire"]

_RESERVE = """
    INSERT INTO [dedupe] (queue, key, message_id, confirmed, expires_at) VALUES (?1, ?2, ?3, 0, ?4)
    ON CONFLICT (queue, key) DO UPDATE
    SET message_id = ?3, confirmed = 0, expires_at = ?4 WHERE expires_at <= ?5
"""
_CURRENT = "SELECT key, message_id, confirmed FROM [dedupe] WHERE queue = ? AND key = ?"
_CONFIRM = "UPDATE [dedupe] SET confirmed = 1 WHERE queue = ? AND key = ? AND message_id = ?"
_EXPIRE = """
    DELETE FROM [dedupe] WHERE queue = ?1
    AND key IN (SELECT key FROM [dedupe] WHERE queue = ?1 AND expires_at <= ?2 LIMIT ?3)
"""

_UNIQUE = "SELECT message_id FROM [dedupe] WHERE queue = ? AND key = ?"
_ENTER = """
    INSERT INTO [dedupe] (queue, key, message_id, confirmed, expires_at) VALUES (?, ?, ?, 1, ?) ON CONFLICT DO NOTHING
"""
_SET = "UPDATE [dedupe] SET message_id = ? WHERE queue = ? AND key = ? AND message_id = ?"
_TAKE_OUT = "DELETE FROM [dedupe] WHERE queue = ? AND key = ? AND message_id = ?"
_LIST = "SELECT key, message_id FROM [dedupe] WHERE queue = ? AND key > ? AND key < ? ORDER BY key LIMIT ?"
_NEVER = 2**62


class KeyMethods:
    """The methods of the store that are about keys."""

    session: Session

    def reserve_keys(
        self, queue: str, entries: Sequence[DedupeEntry], window: int
    ) -> tuple[DedupeEntry, ...]:
        """Reserve the keys that are free; raises QueueNotFound. The append that follows makes it durable."""
        return self.session.write(_reserve, queue, entries, window, durable=False)

    def confirm_keys(self, queue: str, entries: Sequence[DedupeEntry]) -> None:
        """Mark the entries' messages as stored."""
        self.session.write(lambda sql, _: _confirm(sql, queue, entries), durable=False)

    def compare_and_set_keys(self, queue: str, changes: Sequence[KeyChange]) -> tuple[str | None, ...]:
        """Read the keys; change them in one transaction where some are as the caller saw them."""
        current = self.session.read(lambda sql: _values(sql, queue, changes))
        if all(
            found != change.before or found == change.after
            for found, change in zip(current, changes, strict=True)
        ):
            return current
        return self.session.write(
            lambda sql, _: _change(sql, queue, changes),
            durable=any(None not in (change.before, change.after) for change in changes),
        )

    def list_keys(self, queue: str, after: str = "", limit: int = 1000) -> tuple[KeyEntry, ...]:
        """Return the next entries, by key."""
        return self.session.read(lambda sql: _list(sql, queue, after, limit))


def _reserve(
    sql: sqlite3.Connection, queue: str, entries: Sequence[DedupeEntry], window: int, now: int
) -> tuple[DedupeEntry, ...]:
    """Reserve the free keys; returns the present entry of each. Raises QueueNotFound."""
    queues.require(sql, queue)
    sql.executemany(_RESERVE, ((queue, entry.key, entry.message_id, now + window, now) for entry in entries))
    return tuple(_current(sql, queue, entry.key) for entry in entries)


def _current(sql: sqlite3.Connection, queue: str, key: str) -> DedupeEntry:
    key, message_id, confirmed = sql.execute(_CURRENT, (queue, key)).fetchone()
    return DedupeEntry(key, message_id, bool(confirmed))


def _confirm(sql: sqlite3.Connection, queue: str, entries: Sequence[DedupeEntry]) -> None:
    """Mark the messages of the entries as stored."""
    sql.executemany(_CONFIRM, ((queue, entry.key, entry.message_id) for entry in entries))


def expire(sql: sqlite3.Connection, queue: str, limit: int, now: int) -> int:
    """Remove up to ``limit`` keys whose window has ended; returns how many."""
    return sql.execute(_EXPIRE, (queue, now, limit)).rowcount


def _values(sql: sqlite3.Connection, queue: str, changes: Sequence[KeyChange]) -> tuple[str | None, ...]:
    """Return the values under the unique keys."""
    found = (sql.execute(_UNIQUE, (queue, UNIQUE_PREFIX + change.key)).fetchone() for change in changes)
    return tuple(row[0] if row else None for row in found)


def _change(sql: sqlite3.Connection, queue: str, changes: Sequence[KeyChange]) -> tuple[str | None, ...]:
    """Make the changes whose ``before`` stands; returns what stands then. Raises QueueNotFound."""
    if any(change.before is None for change in changes):
        queues.require(sql, queue)
    for change in changes:
        key = UNIQUE_PREFIX + change.key
        if change.before is None and change.after is not None:
            sql.execute(_ENTER, (queue, key, change.after, _NEVER))
        elif change.after is None:
            sql.execute(_TAKE_OUT, (queue, key, change.before))
        else:
            sql.execute(_SET, (change.after, queue, key, change.before))
    return _values(sql, queue, changes)


def _list(sql: sqlite3.Connection, queue: str, after: str, limit: int) -> tuple[KeyEntry, ...]:
    """Return the next entries after a key."""
    rows = sql.execute(_LIST, (queue, UNIQUE_PREFIX + after, UNIQUE_END, limit))
    return tuple(KeyEntry(key.removeprefix(UNIQUE_PREFIX), value) for key, value in rows)
