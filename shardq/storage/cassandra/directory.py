"""The shard directory of a queue.

A producer looks whether its queue is there and its shard is listed, and relies on that for a quarter of a second. A
write that is answered within that time needs no second look. Whoever takes a shard or a queue away announces
it first, waits for longer than that, and only then looks whether something is in it.
"""

from __future__ import annotations

import time

from shardq.sharding.shard import Shard
from shardq.storage.cassandra import queues
from shardq.storage.cassandra.session import Session

__all__ = ["NOTICE", "Entered", "announce_leaving", "enter", "leave", "listing", "still_listed", "take_out"]

_MEMORY = 0.25  # seconds for which a producer relies on what it saw
NOTICE = 0.4
"""Seconds after which every producer has seen an announcement, and what it wrote before can be read."""

_MOST = 10_000
_INSERT = "INSERT INTO shard_directory (queue, time_shard, number) VALUES (?, ?, ?) IF NOT EXISTS"
_DELETE = "DELETE FROM shard_directory WHERE queue = ? AND time_shard = ? AND number = ? IF EXISTS"
_DELETE_LEAVING = (
    "DELETE FROM shard_directory WHERE queue = ? AND time_shard = ? AND number = ? IF leaving = ?"
)
_SET_LEAVING = (
    "UPDATE shard_directory SET leaving = ? WHERE queue = ? AND time_shard = ? AND number = ? IF leaving = ?"
)
_LEAVING = "SELECT leaving FROM shard_directory WHERE queue = ? AND time_shard = ? AND number = ?"
_LIST = "SELECT time_shard, number FROM shard_directory WHERE queue = ?"


class Entered:
    """The shards that this client saw in the directory of an existing queue, and when it asked."""

    def __init__(self) -> None:
        self._asked: dict[Shard, float] = {}

    def is_fresh(self, shard: Shard) -> bool:
        """Tell whether a write that has been answered by now needs no second look."""
        return time.monotonic() < self._asked.get(shard, -1.0) + _MEMORY

    def look(self, session: Session, shard: Shard) -> None:
        """Look, and list the shard if it is not; raises QueueNotFound."""
        asked = time.monotonic()
        if not still_listed(session, shard):
            raise queues.not_found(shard.queue)
        if len(self._asked) >= _MOST:
            self._asked.clear()
        self._asked[shard] = asked

    def forget(self, queue: str) -> None:
        """Look again before the next write to the queue."""
        self._asked = {shard: asked for shard, asked in self._asked.items() if shard.queue != queue}


def still_listed(session: Session, shard: Shard) -> bool:
    """List the shard unless it is listed; False when its queue is gone."""
    while True:
        listed = session.start_read(_LEAVING, _place(shard))
        if not queues.exists(session, shard.queue):
            return False
        rows = listed()
        if (row := next(iter(rows), None)) is None:
            session.apply([(_INSERT, _place(shard))])
        elif row[0] is not None:
            session.apply([(_SET_LEAVING, (None, *_place(shard), row[0]))])
        else:
            return True


def enter(session: Session, shard: Shard) -> None:
    """List the shard unless it is listed; raises QueueNotFound."""
    if not still_listed(session, shard):
        raise queues.not_found(shard.queue)


def announce_leaving(session: Session, shard: Shard, now: int) -> int | None:
    """Say that the shard is to go, unless that is said already; returns since when, None if it is not listed."""
    rows = session.read(_LEAVING, _place(shard))
    if not rows:
        return None
    if rows[0][0] is None and not session.apply([(_SET_LEAVING, (now, *_place(shard), None))]):
        return now  # someone else was faster, just now
    return now if rows[0][0] is None else int(rows[0][0])


def take_out(session: Session, shard: Shard, since: int) -> bool:
    """Take the shard out of the directory if nobody wrote to it since that was announced."""
    return session.apply([(_DELETE_LEAVING, (*_place(shard), since))])


def leave(session: Session, shard: Shard) -> None:
    """Take the shard out of the directory of a queue that is dropped."""
    session.apply([(_DELETE, _place(shard))])


def listing(session: Session, queue: str) -> tuple[Shard, ...]:
    """Return the queue's shards, sorted."""
    return tuple(Shard(queue, *row) for row in session.read(_LIST, (queue,)))


def _place(shard: Shard) -> tuple[str, int, int]:
    return shard.queue, shard.time_shard, shard.number
