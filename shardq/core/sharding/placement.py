"""Which shard to write: rotation over the concurrency shards of the due time's time shard."""

from __future__ import annotations

import random
import threading

from shardq.base.ring import Layout
from shardq.base.shard import Shard
from shardq.storage.per_process import forks

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
        self.renew()
        forks.renewed.add(self)

    def renew(self) -> None:
        """Begin anew, at a random shard."""
        self._lock = threading.RLock()  # a signal's handler may send, too
        self._turn = random.randrange(2**20)
        self._singles = 0

    def choose(self, layout: Layout, due: int, messages: int) -> Shard:
        """The shard for so many messages that are due at a moment in microseconds."""
        with self._lock:
            self._singles = (self._singles + 1) % SINGLES_PER_TURN if messages == 1 else 0
            if self._singles == 0:
                self._turn += 1
            turn = self._turn
        return Shard(self._queue, layout.time_shard(due), turn % layout.shards)
