"""The shard directory of a queue.

A producer enters a shard before its first write there, and looks again after each write: whoever forgets a shard
takes it out first and then looks whether something is in it, so one of the two always sees the other.
"""

from __future__ import annotations

import time

from shardq.sharding.shard import Shard
from shardq.storage.cassandra import queues
from shardq.storage.cassandra.session import Session

__all__ = ["Entered", "confirm", "enter", "leave", "listing"]

_MEMORY = 1.0
_MOST = 10_000
_ENTER = "INSERT INTO shard_directory (queue, time_shard, number) VALUES (?, ?, ?) IF NOT EXISTS"
_LEAVE = "DELETE FROM shard_directory WHERE queue = ? AND time_shard = ? AND number = ? IF EXISTS"
_LISTED = "SELECT number FROM shard_directory WHERE queue = ? AND time_shard = ? AND number = ?"
_LIST = "SELECT time_shard, number FROM shard_directory WHERE queue = ?"


class Entered:
    """The shards that this client has seen in the directory a moment ago."""

    def __init__(self) -> None:
        self._until: dict[Shard, float] = {}

    def __contains__(self, shard: Shard) -> bool:
        return self._until.get(shard, 0.0) > time.monotonic()

    def add(self, shard: Shard) -> None:
        """The shard and its queue were there just now."""
        if len(self._until) >= _MOST:
            self._until.clear()
        self._until[shard] = time.monotonic() + _MEMORY


def enter(session: Session, shard: Shard) -> None:
    """Put the shard into the directory unless it is there."""
    if not session.read(_LISTED, _place(shard)):
        session.apply([(_ENTER, _place(shard))])


def confirm(session: Session, shard: Shard) -> bool:
    """After a write: see that the shard is still listed; False when its queue is gone."""
    while True:
        listed = session.start_read(_LISTED, _place(shard))
        if not queues.exists(session, shard.queue):
            return False
        if list(listed()):
            return True
        session.apply([(_ENTER, _place(shard))])


def leave(session: Session, shard: Shard) -> None:
    """Take the shard out of the directory."""
    session.apply([(_LEAVE, _place(shard))])


def listing(session: Session, queue: str) -> tuple[Shard, ...]:
    """Return the queue's shards, sorted."""
    return tuple(Shard(queue, *row) for row in session.read(_LIST, (queue,)))


def _place(shard: Shard) -> tuple[str, int, int]:
    return shard.queue, shard.time_shard, shard.number
