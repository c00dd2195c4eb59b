"""Which shard to write: rotation over the concurrency shards of the due time's time shard."""

from __future__ import annotations

import random
import threading

from shardq.sharding.ring import Layout
from shardq.sharding.shard import Shard
from shardq.storage.per_process import PerProcess

__all__ = ["SINGLES_PER_TURN", "Placement"]

SINGLES_PER_TURN = 512


class Placement:
    """Turns through the shards from a random start, so that many writers spread evenly.

    A bundle of many messages takes a turn of its own. Messages sent one by one stay on a shard for a while
    (512 messages), so that a bulk read finds them together; this is the sticky partitioning of Kafka's
    producers (KIP-480). A forked child starts elsewhere.
    """

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._turns = PerProcess(_Turns)

    def choose(self, layout: Layout, due: int, messages: int) -> Shard:
        """The shard for so many messages that are due at a moment in microseconds."""
        return Shard(self._queue, layout.time_shard(due), self._turns.get().next(messages) % layout.shards)


class _Turns:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turn = random.randrange(2**20)
        self._singles = 0

    def next(self, messages: int) -> int:
        with self._lock:
            self._singles = (self._singles + 1) % SINGLES_PER_TURN if messages == 1 else 0
            if self._singles == 0:
                self._turn += 1
            return self._turn
