"""The counters of a client, by queue."""

from __future__ import annotations

from typing import Self

import msgspec

from shardq.base.shard import INTERNAL, TOPICS_FOLDER
from shardq.storage.per_process import OwnLock

__all__ = ["ClientCounters", "Counters", "MutableCounters"]

OTHERS = "_others"
"""The name under which further queues are counted together: no queue has it."""

MOST_QUEUES = 4096  # queues that are counted one by one


class Counters(msgspec.Struct, frozen=True):
    """Counters since the client was opened, in messages unless another unit is named."""

    sent: int = 0
    deduplicated: int = 0  # not stored because their dedupe key or unique key was taken
    received: int = 0
    redelivered: int = 0  # of those received: not for the first time
    acked: int = 0
    released: int = 0
    extended: int = 0
    forwarded: int = 0
    dead_lettered: int = 0
    redriven: int = 0  # dead letters that were sent back to this queue; each is forwarded, too
    expired: int = 0  # dropped because their ttl or the retention was over
    dropped: int = 0  # the oldest of a full queue, for others
    lease_lost: int = 0
    claims: int = 0  # claims that were tried
    lock_contention: int = 0  # claims that found the shard locked by another
    empty_reads: int = 0  # reads that found no message
    retries: int = 0  # store calls that were repeated
    events_lost: int = 0  # events that could not be written to the log of their queue

    def __add__(self, other: Self) -> Counters:
        return Counters(*(getattr(self, name) + getattr(other, name) for name in self.__struct_fields__))


class MutableCounters:
    """Counters that several threads raise."""

    def __init__(self) -> None:
        self._lock = OwnLock()
        self._values = dict.fromkeys(Counters.__struct_fields__, 0)

    def add(self, **amounts: int) -> None:
        """Add to counters by name."""
        with self._lock.plain:
            for name, amount in amounts.items():
                self._values[name] += amount

    def repeated(self) -> None:
        """Count a call of the store that is repeated."""
        self.add(retries=1)

    def read(self) -> Counters:
        """Return the present values of the counters."""
        with self._lock.plain:
            return Counters(**self._values)


class ClientCounters:
    """The counters of a client's queues, and those that are of none. They outlive the queues, and never go down.

    The queues that shardq makes for itself are counted together, but for those of topics. After 4,096 queues further
    ones are, too: a program may make one for each request.
    """

    def __init__(self) -> None:
        self.own = MutableCounters()
        self._lock = OwnLock()
        self._queues: dict[str, MutableCounters] = {}

    def of(self, queue: str) -> MutableCounters:
        """Return the counters of a queue."""
        if queue.startswith(INTERNAL) and not queue.startswith(TOPICS_FOLDER):
            queue = INTERNAL.rstrip("/")
        with self._lock.plain:
            known = self._queues.get(queue)
            if known is None:
                name = queue if len(self._queues) < MOST_QUEUES else OTHERS
                known = self._queues.setdefault(name, MutableCounters())
            return known

    def by_queue(self) -> dict[str, Counters]:
        """Return the counters of each queue as they are now; those under "" are of none."""
        with self._lock.plain:
            queues = {"": self.own, **self._queues}
        return {name: counters.read() for name, counters in queues.items()}

    def total(self) -> Counters:
        """Return the sum of all counters."""
        return sum(self.by_queue().values(), Counters())
