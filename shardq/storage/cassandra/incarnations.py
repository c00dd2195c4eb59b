"""The incarnations of the queues: what a queue is called in the tables, other than that of the records.

Each creation of a queue makes a new incarnation, and its name is part of every partition key. So a queue that is
deleted and created again shares no partition with the one before.
"""

from __future__ import annotations

import msgspec

from shardq.errors import OutcomeUnknown, StoreUnavailable
from shardq.sharding.shard import Shard
from shardq.storage.cassandra import queues
from shardq.storage.cassandra.session import Session
from shardq.storage.elapsed import Moment

__all__ = ["Incarnations", "name_of", "parted"]

_MEMORY = 0.25  # seconds for which calls go by what was seen, as producers do; whoever drops a queue waits for longer
_LONG_MEMORY = 10.0  # that of glances, and of all calls while the record cannot be read
_SIGN = "@"  # no name of a queue has it


class Incarnations:
    """Which incarnations this client saw last.

    What goes by an incarnation that is over finds nothing, and what it writes is seen by nobody.
    """

    def __init__(self) -> None:
        self._seen: dict[str, tuple[str, Moment, float]] = {}

    def saw(self, queue: str, incarnation: str) -> None:
        """Go by it for a while."""
        self._seen[queue] = incarnation, Moment.now(), _MEMORY

    def forget(self, queue: str) -> None:
        """Look again at the next call."""
        self._seen.pop(queue, None)

    def of(self, session: Session, queue: str, *, glance: bool = False) -> str:
        """Return what the queue is called in the tables; nothing is stored under it when there is no such queue."""
        incarnation, seen, memory = self._seen.get(queue, ("", None, 0.0))
        if seen is None or seen.passed() > (_LONG_MEMORY if glance else memory):
            try:
                found = queues.current(session, queue)
            except (StoreUnavailable, OutcomeUnknown):
                if seen is None:
                    raise
                self._seen[queue] = incarnation, Moment.now(), _LONG_MEMORY
            else:
                if found is not None:
                    incarnation = found
                    self.saw(queue, incarnation)
        return name_of(queue, incarnation)

    def require(self, session: Session, queue: str) -> str:
        """Return the same, as it is now; raises QueueNotFound."""
        incarnation = queues.current(session, queue)
        if incarnation is None:
            raise queues.not_found(queue)
        self.saw(queue, incarnation)
        return name_of(queue, incarnation)

    def place(self, session: Session, shard: Shard, *, glance: bool = False) -> Shard:
        """Return the shard under what its queue is called in the tables."""
        return msgspec.structs.replace(shard, queue=self.of(session, shard.queue, glance=glance))


def name_of(queue: str, incarnation: str) -> str:
    """Return what an incarnation is called in the tables: the queue's name alone for one of before there were any."""
    return f"{queue}{_SIGN}{incarnation}" if incarnation else queue


def parted(name: str) -> tuple[str, str]:
    """Return queue and incarnation of such a name."""
    queue, _, incarnation = name.partition(_SIGN)
    return queue, incarnation
