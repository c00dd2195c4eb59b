"""The records of the queues.

A queue that is being dropped keeps its record, condemned, until nothing of it is left: a crash on the way is
finished by the next drop or create.
"""

from __future__ import annotations

from shardq.errors import QueueNotFound
from shardq.storage.cassandra.session import Session
from shardq.storage.requests import QueueRecord

__all__ = [
    "condemn",
    "create",
    "exists",
    "is_condemned",
    "listing",
    "load",
    "not_found",
    "remove",
    "require",
    "update",
]

_INSERT = "INSERT INTO queue (name, version, settings) VALUES (?, ?, ?) IF NOT EXISTS"
_SELECT = "SELECT name, settings, version FROM queue WHERE name = ?"
_VERSION = "SELECT version FROM queue WHERE name = ?"
_UPDATE = "UPDATE queue SET settings = ?, version = ? WHERE name = ? IF version = ?"
_NAMES = "SELECT name, version FROM queue"
_CONDEMN = "UPDATE queue SET version = ? WHERE name = ? IF version = ?"
_DELETE = "DELETE FROM queue WHERE name = ? IF version = ?"
_CONDEMNED = -1


def create(session: Session, record: QueueRecord) -> bool:
    """Store the record; False when the name is taken."""
    return session.apply([(_INSERT, (record.name, record.version, record.settings))])


def load(session: Session, name: str) -> QueueRecord | None:
    """Return the record, or None."""
    rows = session.read(_SELECT, (name,))
    if not rows or rows[0][2] == _CONDEMNED:
        return None
    return QueueRecord(rows[0][0], rows[0][1] or b"", rows[0][2])


def update(session: Session, record: QueueRecord) -> bool:
    """Replace the record of the version before; False when there is none."""
    if record.version - 1 == _CONDEMNED:
        return False
    return session.apply([(_UPDATE, (record.settings, record.version, record.name, record.version - 1))])


def listing(session: Session, prefix: str) -> tuple[str, ...]:
    """Return the names that start with the prefix, sorted."""
    rows = session.read(_NAMES, ())
    return tuple(sorted(name for name, version in rows if version != _CONDEMNED and name.startswith(prefix)))


def condemn(session: Session, name: str) -> bool:
    """Let the queue exist no longer, whatever is left of it; False when there is none."""
    while (version := _version(session, name)) is not None:
        if version == _CONDEMNED or session.apply([(_CONDEMN, (_CONDEMNED, name, version))]):
            return True
    return False


def is_condemned(session: Session, name: str) -> bool:
    """Tell whether something may be left of a queue that was dropped."""
    return _version(session, name) == _CONDEMNED


def remove(session: Session, name: str) -> None:
    """Delete a condemned record."""
    session.apply([(_DELETE, (name, _CONDEMNED))])


def exists(session: Session, name: str) -> bool:
    """Tell whether there is such a queue."""
    return _version(session, name) not in (None, _CONDEMNED)


def require(session: Session, name: str) -> None:
    """Raise QueueNotFound unless the queue exists."""
    if not exists(session, name):
        raise not_found(name)


def not_found(name: str) -> QueueNotFound:
    """Return the error for a queue that does not exist."""
    return QueueNotFound(f"queue {name!r} does not exist: create it first")


def _version(session: Session, name: str) -> int | None:
    rows = session.read(_VERSION, (name,))
    return int(rows[0][0]) if rows else None
