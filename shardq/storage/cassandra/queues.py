"""The records of the queues, and their incarnations.

A queue that is being dropped keeps its record, condemned, until nothing of it is left. The next drop or create
finishes one that crashed on the way.

Each creation of a queue makes a new incarnation, and its name is part of every partition key. So a queue that is
deleted and created again shares no partition with the one before.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress

import msgspec

from shardq.base.shard import Shard
from shardq.errors import OutcomeUnknown, QueueNotFound, StoreUnavailable
from shardq.storage.cassandra.session import Session
from shardq.storage.clocks import Moment
from shardq.storage.requests import QueueRecord

__all__ = [
    "Incarnations",
    "condemn",
    "condemned",
    "create",
    "current",
    "listing",
    "load",
    "load_all",
    "name_of",
    "not_found",
    "parted",
    "remove",
    "states",
    "update",
]

_INSERT = "INSERT INTO queue (name, version, settings, incarnation) VALUES (?, ?, ?, ?) IF NOT EXISTS"
_SELECT = "SELECT name, settings, version, incarnation FROM queue WHERE name = ?"
_SELECT_ALL = "SELECT name, settings, version, incarnation FROM queue WHERE name IN ?"
_STATE = "SELECT version, incarnation FROM queue WHERE name = ?"
_STATES_OF = "SELECT name, version, incarnation FROM queue WHERE name IN ?"
_UPDATE = "UPDATE queue SET settings = ?, version = ? WHERE name = ? IF version = ?"
_STATES = "SELECT name, version, incarnation FROM queue"
_CONDEMN = "UPDATE queue SET version = ? WHERE name = ? IF version = ? AND incarnation = ?"
_CONDEMN_SEEN = f"{_CONDEMN} AND settings = ?"
_DELETE = "DELETE FROM queue WHERE name = ? IF version = ? AND incarnation = ?"
_CONDEMNED = -1

_MEMORY = 0.25  # seconds for which calls go by what was seen, as producers do; whoever drops a queue waits for longer
_LONG_MEMORY = 10.0  # that of glances, which full probes and registrations end sooner
_UNREAD_MEMORY = 2.0  # after the record could not be read, or as long as that took
_MOST = 10_000  # queues that are remembered
_SIGN = "@"  # between a queue and its incarnation
_STAND_IN = "~"  # for that sign in the name of a queue; no queue's name has it itself


def create(session: Session, record: QueueRecord) -> str | None:
    """Store the record; returns the new incarnation, None when the name is taken."""
    incarnation = os.urandom(6).hex()
    stored = session.apply([(_INSERT, (record.name, record.version, record.settings, incarnation))])
    return incarnation if stored else None


def load(session: Session, name: str) -> tuple[QueueRecord, str] | None:
    """Return the record and the incarnation, or None."""
    return _living_records(session.read(_SELECT, (name,))).get(name)


def load_all(session: Session, names: Sequence[str]) -> dict[str, tuple[QueueRecord, str]]:
    """Return the records and the incarnations of the queues that exist, all read with one request."""
    return _living_records(session.read(_SELECT_ALL, (names,)))


def _living_records(
    rows: Iterable[tuple[str, bytes | None, int, str | None]],
) -> dict[str, tuple[QueueRecord, str]]:
    return {
        name: (QueueRecord(name, settings or b"", version), incarnation or "")
        for name, settings, version, incarnation in rows
        if version != _CONDEMNED
    }


def update(session: Session, record: QueueRecord) -> bool:
    """Replace the record of the version before; False when there is none."""
    if record.version - 1 == _CONDEMNED:
        return False
    return session.apply([(_UPDATE, (record.settings, record.version, record.name, record.version - 1))])


def listing(session: Session, prefix: str = "") -> dict[str, str]:
    """Return the names that start with the prefix, sorted, with their incarnations."""
    return {
        name: incarnation
        for name, (incarnation, is_condemned) in sorted(states(session).items())
        if not is_condemned and name.startswith(prefix)
    }


def states(session: Session) -> dict[str, tuple[str, bool]]:
    """Return the incarnation of every queue, and whether it was dropped and something may be left of it."""
    rows = session.read(_STATES, ())
    return {name: (incarnation or "", version == _CONDEMNED) for name, version, incarnation in rows}


def condemn(session: Session, name: str, seen: QueueRecord | None = None) -> str | None:
    """Let the queue exist no longer, whatever is left of it, if its record is the one that was ``seen``.

    Returns its incarnation, None when there is none such.
    """
    while (rows := session.read_serial(_STATE, (name,))) and rows[0][0] is not None:
        version, incarnation = rows[0]
        values = _CONDEMNED, name, version, incarnation
        if version == _CONDEMNED:
            return incarnation or ""
        if seen is not None and version != seen.version:
            return None
        statement = (_CONDEMN, values) if seen is None else (_CONDEMN_SEEN, (*values, seen.settings))
        if session.apply([statement]):
            return incarnation or ""
        if seen is not None:
            return None
    return None


def condemned(session: Session, name: str) -> str | None:
    """Return the incarnation of a queue that was dropped and of which something may be left, or None."""
    rows = session.read(_STATE, (name,))
    return (rows[0][1] or "") if rows and rows[0][0] == _CONDEMNED else None


def remove(session: Session, name: str, incarnation: str) -> None:
    """Delete the record of a condemned incarnation."""
    session.apply([(_DELETE, (name, _CONDEMNED, incarnation or None))])


def current(session: Session, name: str) -> str | None:
    """Return the incarnation that there is now; None when there is no such queue."""
    return _living(session.read(_STATE, (name,)))


def not_found(name: str) -> QueueNotFound:
    """Return the error for a queue that does not exist."""
    return QueueNotFound(f"queue {name!r} does not exist: create it first")


def _living(rows: list[tuple[int, str | None]]) -> str | None:
    return None if not rows or rows[0][0] in (None, _CONDEMNED) else rows[0][1] or ""


class Incarnations:
    """Which incarnations this client saw last.

    Requests to an incarnation that has ended find nothing, and writes to it are never read.
    """

    def __init__(self) -> None:
        self._seen: dict[str, tuple[str, Moment, float]] = {}

    def remembered(self) -> int:
        """Return how many queues are remembered."""
        return len(self._seen)

    def saw(self, queue: str, incarnation: str) -> None:
        """Go by it for a while."""
        if len(self._seen) >= _MOST:
            self._seen.clear()
        self._seen[queue] = incarnation, Moment.now(), _MEMORY

    def forget(self, queue: str) -> None:
        """Look again at the next call."""
        self._seen.pop(queue, None)

    def of(self, session: Session, queue: str, *, glance: bool = False) -> str:
        """Return the name of the queue in the tables; nothing is stored under it when there is no such queue."""
        incarnation, seen, _ = self._seen.get(queue, ("", None, 0.0))
        if self._is_stale(queue, glance=glance):
            asked = Moment.now()
            try:
                found = current(session, queue)
            except (StoreUnavailable, OutcomeUnknown):
                if seen is None:
                    raise
                memory = min(max(_UNREAD_MEMORY, asked.passed()), _LONG_MEMORY)
                self._seen[queue] = incarnation, Moment.now(), memory
            else:
                if found is not None:
                    incarnation = found
                    self.saw(queue, incarnation)
        return name_of(queue, incarnation)

    def refresh(self, session: Session, queues: Collection[str], *, glance: bool) -> None:
        """Read again what was seen too long ago of these queues, with one request."""
        stale = [queue for queue in queues if self._is_stale(queue, glance=glance)]
        if len(stale) < 2:  # `of` reads it
            return
        with suppress(StoreUnavailable, OutcomeUnknown):  # `of` reports each
            for name, *state in session.read(_STATES_OF, (stale,)):
                if (incarnation := _living([tuple(state)])) is not None:
                    self.saw(name, incarnation)

    def _is_stale(self, queue: str, *, glance: bool) -> bool:
        _, seen, memory = self._seen.get(queue, ("", None, 0.0))
        return seen is None or seen.passed() > (_LONG_MEMORY if glance else memory)

    def require(self, session: Session, queue: str) -> str:
        """Return the same, as it is now; raises QueueNotFound."""
        incarnation = current(session, queue)
        if incarnation is None:
            raise not_found(queue)
        self.saw(queue, incarnation)
        return name_of(queue, incarnation)

    def place(self, session: Session, shard: Shard) -> Shard:
        """Return the shard under what its queue is called in the tables."""
        return msgspec.structs.replace(shard, queue=self.of(session, shard.queue))


def name_of(queue: str, incarnation: str) -> str:
    """Return the name of an incarnation in the tables: the queue's name alone for an older queue without one."""
    plain = queue.replace(_SIGN, _STAND_IN)
    return f"{plain}{_SIGN}{incarnation}" if incarnation else plain


def parted(name: str) -> tuple[str, str]:
    """Return queue and incarnation of such a name."""
    plain, _, incarnation = name.partition(_SIGN)
    return plain.replace(_STAND_IN, _SIGN), incarnation
