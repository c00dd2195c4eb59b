"""The shard directory of a queue. Shards are named by what their queue is called in the tables.

A producer looks whether its queue is there and its shard is listed, and relies on that for a quarter of a second. A
write that is answered within that time needs no second look. A client that removes a shard or a queue announces it
first, and waits for longer than that since it saw the announcement stored. Only then it checks whether the shard is
empty.

A shard that was listed once keeps its row until the queue is dropped; one that is taken out has a row that says so.
The content of a row is a hint: a deep read and the sweep list a shard again that holds messages. That there is a row
can be relied on: no shard is written before it has one. So the rows name every shard that may hold anything.
Partitions are never looked for in the table of messages, where a range read crosses everything that was deleted.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

from shardq.base.shard import Shard
from shardq.storage.cassandra import queues
from shardq.storage.cassandra.queues import parted
from shardq.storage.cassandra.session import Session
from shardq.storage.clocks import Moment

__all__ = [
    "NOTICE",
    "DropAnnouncements",
    "ListedShards",
    "drop",
    "enter",
    "ever_listed",
    "listing",
    "listings",
]

_MEMORY = 0.25  # seconds for which a producer relies on what it saw
NOTICE = 0.4
"""Seconds after which every producer has seen an announcement, and what it wrote before can be read."""

_MOST = 10_000
CQL_OUT = -1  # in the place of an announcement: the shard is taken out
_INSERT = "INSERT INTO shard_directory (queue, time_shard, number) VALUES (?, ?, ?) IF NOT EXISTS"
CQL_SET_LEAVING = (
    "UPDATE shard_directory SET leaving = ? WHERE queue = ? AND time_shard = ? AND number = ? IF leaving = ?"
)
_LEAVING = "SELECT leaving FROM shard_directory WHERE queue = ? AND time_shard = ? AND number = ?"
_ROWS = "SELECT queue, time_shard, number, leaving FROM shard_directory WHERE queue IN ?"
_DROP = "DELETE FROM shard_directory USING TIMESTAMP ? WHERE queue = ?"


class ListedShards:
    """The shards that this client saw in the directory of an existing queue, and when it asked."""

    def __init__(self) -> None:
        self._asked: dict[Shard, Moment] = {}

    def is_fresh(self, shard: Shard) -> bool:
        """Return whether a write that has been answered by now needs no second look."""
        asked = self._asked.get(shard)
        return asked is not None and asked.passed() < _MEMORY

    def check(self, session: Session, shard: Shard) -> None:
        """Read, and list the shard if it is not; raises QueueNotFound when this incarnation of its queue has ended."""
        asked = Moment.now()
        enter(session, shard)
        if len(self._asked) >= _MOST:
            self._asked.clear()
        self._asked[shard] = asked

    def heal(self, session: Session, shards: Iterable[Shard]) -> None:
        """List the shards, which hold something, unless they are listed."""
        by_queue: dict[str, set[Shard]] = {}
        for shard in shards:
            by_queue.setdefault(shard.queue, set()).add(shard)
        for queue, holders in by_queue.items():
            for shard in holders.difference(listing(session, queue)):
                still_listed(session, shard)

    def forget(self, queue: str) -> None:
        """Look again before the next write to the queue, whichever incarnation."""
        for shard in list(self._asked):  # other threads send meanwhile
            if parted(shard.queue)[0] == queue:
                self._asked.pop(shard, None)


class DropAnnouncements:
    """The announcements that this client saw: which shards are to go, and when it saw so."""

    def __init__(self) -> None:
        self._seen: dict[Shard, tuple[int, Moment]] = {}

    def announce(self, session: Session, shard: Shard) -> int | None:
        """Announce that the shard is to be removed, unless another client has; returns the announcement.

        None when it is not listed. The time until every producer has taken notice begins here, on this client's own
        clock. An announcement that was on its way for long, or is of another client, shortens none of it.
        """
        rows = session.read_serial(_LEAVING, _place(shard))
        if not rows or rows[0][0] == CQL_OUT:
            self._seen.pop(shard, None)
            return None
        announced = rows[0][0]
        if announced is None:
            announced = int.from_bytes(os.urandom(6), "big")
            if not session.apply([(CQL_SET_LEAVING, (announced, *_place(shard), None))]):
                return announced  # someone else was faster, just now
        if self._seen.get(shard, (None,))[0] != announced:
            if len(self._seen) >= _MOST:
                self._seen.clear()
            self._seen[shard] = announced, Moment.now()
        return int(announced)

    def is_noticed(self, shard: Shard, announced: int) -> bool:
        """Return whether every producer has taken notice of the announcement."""
        seen = self._seen.get(shard)
        return seen is not None and seen[0] == announced and seen[1].surely_passed() >= NOTICE

    def take_out(self, session: Session, shard: Shard, announced: int) -> bool:
        """Remove the shard from the directory if it was not written since the announcement."""
        self._seen.pop(shard, None)
        return session.apply([(CQL_SET_LEAVING, (CQL_OUT, *_place(shard), announced))])


def still_listed(session: Session, shard: Shard) -> bool:
    """List the shard unless it is listed; False when this incarnation of its queue has ended."""
    name, incarnation = parted(shard.queue)
    while True:
        listed = session.start_read(_LEAVING, _place(shard))
        if queues.current(session, name) != incarnation:
            return False
        rows = listed()
        if (row := next(iter(rows), None)) is None:
            session.apply([(_INSERT, _place(shard))])
        elif row[0] is not None:
            session.apply([(CQL_SET_LEAVING, (None, *_place(shard), row[0]))])
        else:
            return True


def enter(session: Session, shard: Shard) -> None:
    """List the shard unless it is listed; raises QueueNotFound when this incarnation of its queue has ended."""
    if not still_listed(session, shard):
        raise queues.not_found(parted(shard.queue)[0])


def drop(session: Session, queue: str, written: int) -> None:
    """Forget all shards of the queue, and what is listed until the moment."""
    session.write([(_DROP, (written, queue))])


def ever_listed(session: Session, queue: str) -> tuple[Shard, ...]:
    """Return all shards of the queue that were ever listed, sorted: no other one can hold anything."""
    return tuple(shard for shard, _ in _rows(session, [queue]))


def listing(session: Session, queue: str) -> tuple[Shard, ...]:
    """Return the queue's shards, sorted."""
    return tuple(listings(session, [queue])[queue])


def listings(session: Session, queues: Sequence[str]) -> dict[str, list[Shard]]:
    """Return the shards of several queues, with one request, those of each sorted."""
    found: dict[str, list[Shard]] = {queue: [] for queue in queues}
    for shard, is_out in _rows(session, queues):
        if not is_out:
            found[shard.queue].append(shard)
    return found


def _rows(session: Session, queues: Sequence[str]) -> Iterator[tuple[Shard, bool]]:
    """Read the shards of several queues, and which of them are taken out."""
    for *place, leaving in session.read(_ROWS, (queues,)):
        yield Shard(*place), leaving == CQL_OUT


def _place(shard: Shard) -> tuple[str, int, int]:
    return shard.queue, shard.time_shard, shard.number
