"""The records of the queues.

A queue that is being dropped keeps its record, condemned, until nothing of it is left: a crash on the way is
finished by the next drop or create.
"""

from __future__ import annotations

import os

from shardq.errors import QueueNotFound
from shardq.storage.cassandra.session import Session
from shardq.storage.requests import QueueRecord

__all__ = [
    "condemn",
    "create",
    "current",
    "is_condemned",
    "listing",
    "load",
    "not_found",
    "remove",
    "surely_current",
    "update",
]

_INSERT = "INSERT INTO queue (name, version, settings, incarnation) VALUES (?, ?, ?, ?) IF NOT EXISTS"
_SELECT = "SELECT name, settings, version, incarnation FROM queue WHERE name = ?"
_STATE = "SELECT version, incarnation FROM queue WHERE name = ?"
_UPDATE = "UPDATE queue SET settings = ?, version = ? WHERE name = ? IF version = ?"
_STATES = "SELECT name, version, incarnation FROM queue"
_CONDEMN = "UPDATE queue SET version = ? WHERE name = ? IF version = ? AND incarnation = ?"
_DELETE = "DELETE FROM queue WHERE name = ? IF version = ? AND incarnation = ?"
_CONDEMNED = -1


def create(session: Session, record: QueueRecord) -> str | None:
    """Store the record; returns the new incarnation, None when the name is taken."""
    incarnation = os.urandom(6).hex()
    stored = session.apply([(_INSERT, (record.name, record.version, record.settings, incarnation))])
    return incarnation if stored else None


def load(session: Session, name: str) -> tuple[QueueRecord, str] | None:
    """Return the record and the incarnation, or None."""
    rows = session.read(_SELECT, (name,))
    if not rows or rows[0][2] == _CONDEMNED:
        return None
    return QueueRecord(rows[0][0], rows[0][1] or b"", rows[0][2]), rows[0][3] or ""


def update(session: Session, record: QueueRecord) -> bool:
    """Replace the record of the version before; False when there is none."""
    if record.version - 1 == _CONDEMNED:
        return False
    return session.apply([(_UPDATE, (record.settings, record.version, record.name, record.version - 1))])


def listing(session: Session, prefix: str = "") -> dict[str, str]:
    """Return the names that start with the prefix, sorted, with their incarnations."""
    rows = sorted(session.read(_STATES, ()))
    return {
        name: incarnation or ""
        for name, version, incarnation in rows
        if version != _CONDEMNED and name.startswith(prefix)
    }


def condemn(session: Session, name: str) -> str | None:
    """Let the queue exist no longer, whatever is left of it; returns its incarnation, None when there is none."""
    while (rows := session.read_serial(_STATE, (name,))) and rows[0][0] is not None:
        version, incarnation = rows[0]
        if version == _CONDEMNED or session.apply([(_CONDEMN, (_CONDEMNED, name, version, incarnation))]):
            return incarnation or ""
    return None


def is_condemned(session: Session, name: str) -> bool:
    """Tell whether something may be left of a queue that was dropped."""
    rows = session.read(_STATE, (name,))
    return bool(rows) and rows[0][0] == _CONDEMNED


def remove(session: Session, name: str, incarnation: str) -> None:
    """Delete the record of a condemned incarnation."""
    session.apply([(_DELETE, (name, _CONDEMNED, incarnation or None))])


def current(session: Session, name: str) -> str | None:
    """Return the incarnation that there is now; None when there is no such queue."""
    return _living(session.read(_STATE, (name,)))


def surely_current(session: Session, name: str) -> str | None:
    """Return the same after every change of the record that has begun is finished."""
    return _living(session.read_serial(_STATE, (name,)))


def not_found(name: str) -> QueueNotFound:
    """Return the error for a queue that does not exist."""
    return QueueNotFound(f"queue {name!r} does not exist: create it first")


def _living(rows: list[tuple[int, str | None]]) -> str | None:
    return None if not rows or rows[0][0] in (None, _CONDEMNED) else rows[0][1] or ""
