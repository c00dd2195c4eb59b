"""Which shard and which lane of a group a message is written to."""

from __future__ import annotations

import random
import threading

from shardq.base.shard import Layout, Shard
from shardq.storage.per_process import PerProcess, forks

__all__ = ["MOST_GROUPS", "LaneRoundRobin", "Placement"]

SINGLES_PER_SHARD = 512
MOST_GROUPS = 10_000
"""Groups whose last lane is remembered; the one that began first is forgotten for a further one."""


class Placement:
    """Goes round the shards from a random start, so that many writers spread evenly.

    A bundle of many messages takes a separate shard. Messages sent one by one stay on a shard for a while (512
    messages), so that a bulk read finds them together. This is the sticky partitioning of Kafka's producers (KIP-480).
    A forked child starts elsewhere.
    """

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self.renew()
        forks.renewed.add(self)

    def renew(self) -> None:
        """Begin anew, at a random shard."""
        self._lock = threading.RLock()  # a signal's handler may send, too
        self._next = random.randrange(2**20)
        self._singles = 0

    def choose(self, layout: Layout, due: int, messages: int) -> Shard:
        """Choose the shard for messages that are due at a moment in microseconds."""
        with self._lock:
            self._singles = (self._singles + 1) % SINGLES_PER_SHARD if messages == 1 else 0
            if self._singles == 0:
                self._next += 1
            number = self._next
        return Shard(self._queue, layout.time_shard(due), number % layout.shards)


class LaneRoundRobin:
    """Goes round the lanes of each group of a queue, from a random one on.

    So the messages that a client sends to a group, alone or in bulk, are spread evenly. A group that was forgotten
    begins anew, which costs nothing but evenness. A forked child begins elsewhere.
    """

    def __init__(self) -> None:
        self._round_robin = PerProcess(_RoundRobin)

    def next(self, group: str, lanes: int) -> int:
        """Return the number of the lane for the next message of a group with ``lanes`` lanes."""
        return self._round_robin.get().next(group, lanes)


class _RoundRobin:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[str, int] = {}

    def next(self, group: str, lanes: int) -> int:
        with self._lock:
            last = self._last.get(group)
            if last is None:
                last = random.randrange(lanes)
                if len(self._last) == MOST_GROUPS:
                    del self._last[next(iter(self._last))]
            self._last[group] = number = (last + 1) % lanes
            return number
