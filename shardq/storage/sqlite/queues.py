"""The records of the queues, and the signal that notifies other processes of new messages."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence

import msgspec

from shardq.errors import QueueNotFound
from shardq.storage.requests import QueueRecord
from shardq.storage.sqlite import schema

__all__ = ["announce", "create", "incarnation", "listing", "load", "require", "signals", "state", "update"]

_INSERT = """
    INSERT INTO [queue] (name, version, settings, incarnation) VALUES (?, ?, ?, ?) ON CONFLICT (name) DO NOTHING
"""
_SELECT = "SELECT name, settings, version FROM [queue] WHERE name = ?"
_UPDATE = "UPDATE [queue] SET settings = ?, version = ? WHERE name = ? AND version = ?"
_LIST = "SELECT name FROM [queue] WHERE substr(name, 1, length(?1)) = ?1 ORDER BY name"
_SIGNAL = "SELECT signal FROM [queue] WHERE name = ?"
_SIGNALS = "SELECT name, incarnation + signal FROM json_each(?) AS asked JOIN [queue] ON name = asked.value"
_STATE = "SELECT sum(incarnation + signal) FROM [queue]"
_ANNOUNCE = "UPDATE [queue] SET signal = signal + 1 WHERE name = ?"
_INCARNATION = "SELECT incarnation FROM [queue] WHERE name = ?"
_BYTES = 5  # of an incarnation: never twice the same for one name


def create(sql: sqlite3.Connection, record: QueueRecord) -> bool:
    """Store the record; False when the name is taken."""
    values = (record.name, record.version, record.settings, int.from_bytes(os.urandom(_BYTES)))
    return sql.execute(_INSERT, values).rowcount == 1


def load(sql: sqlite3.Connection, name: str) -> QueueRecord | None:
    """Return the record; raises SchemaMismatch when the schema was changed while the connection was open."""
    schema.is_current(sql)
    row = sql.execute(_SELECT, (name,)).fetchone()
    return QueueRecord(*row) if row else None


def update(sql: sqlite3.Connection, record: QueueRecord) -> bool:
    """Replace the record of the version before; False when there is none."""
    values = (record.settings, record.version, record.name, record.version - 1)
    return sql.execute(_UPDATE, values).rowcount == 1


def listing(sql: sqlite3.Connection, prefix: str) -> tuple[str, ...]:
    """Return the names that start with the prefix, sorted."""
    return tuple(name for (name,) in sql.execute(_LIST, (prefix,)))


def signals(sql: sqlite3.Connection, names: Sequence[str]) -> dict[str, int]:
    """Return for each of the queues that exist a number that changes when something becomes deliverable there.

    Nor is it what it was for a queue of that name before.
    """
    return dict(sql.execute(_SIGNALS, (msgspec.json.encode(names).decode(),)).fetchall())


def state(sql: sqlite3.Connection) -> int | None:
    """Return what changes with the number of any queue."""
    (numbers,) = sql.execute(_STATE).fetchone()
    return int(numbers) if numbers is not None else None


def announce(sql: sqlite3.Connection, name: str) -> None:
    """Change the queue's signal; raises QueueNotFound when there is no such queue."""
    if not sql.execute(_ANNOUNCE, (name,)).rowcount:
        raise _not_found(name)


def incarnation(sql: sqlite3.Connection, name: str) -> int | None:
    """Return the identity of the queue, which others of its name did not have; None when there is no such queue."""
    row = sql.execute(_INCARNATION, (name,)).fetchone()
    return int(row[0]) if row else None


def require(sql: sqlite3.Connection, name: str) -> None:
    """Raise QueueNotFound unless the queue exists."""
    if not sql.execute(_SIGNAL, (name,)).fetchone():
        raise _not_found(name)


def _not_found(name: str) -> QueueNotFound:
    return QueueNotFound(f"queue {name!r} does not exist: create it first")
