"""A queue on a store whose clients die, and those that come after them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

from shardq.base.clock import microseconds
from shardq.base.shard import Shard
from shardq.client.queue import Queue
from shardq.errors import OutcomeUnknown, StoreUnavailable
from shardq.storage.requests import Acknowledge, Claim, Peek, QueueRecord, Span
from shardq.storage.store import Store
from shardq.testing.audit import broken_rows, drain, hidden, remains
from shardq.testing.messages import Message, of_slices
from tests.kills.killers import Killer

__all__ = ["MOST", "TRIES", "Scene"]

T = TypeVar("T")

LEASE = 2.0  # seconds of the test
MOST = 200  # requests that an operation may make
TRIES = 400


class Scene:
    """Each client that dies has a shard of the queue for itself. ``healthy`` knows it of old."""

    def __init__(self, killer: Killer) -> None:
        self.killer, self.harness = killer, killer.harness
        self.healthy = self.harness.open()
        self.queues: list[str] = []
        self.queue = self.new_queue()
        self.lease = microseconds(LEASE * self.harness.time_scale)

    def close(self) -> None:
        for queue in self.queues:
            self.healthy.drop_queue(queue)
        self.healthy.close()

    def new_queue(self) -> str:
        """Create a queue."""
        name = self.new_name()
        self.healthy.create_queue(QueueRecord(name, b"", 1))
        return name

    def new_name(self) -> str:
        """Return the name of a queue that may be created."""
        self.queues.append(f"k{os.urandom(6).hex()}")
        return self.queues[-1]

    def persist(self, do: Callable[[], T]) -> T:
        """Repeat it as every caller does."""
        for _ in range(TRIES):
            try:
                return do()
            except (StoreUnavailable, OutcomeUnknown) as error:
                assert error.retryable, error
                self.harness.advance(0.2 * self.harness.time_scale)
        raise AssertionError("the operation cannot be repeated")

    def end_leases(self, queue: Queue) -> None:
        """Give back what dead consumers hold of a queue, whose leases last for longer than a test."""
        for consumer in queue.consumers():
            if consumer.held:
                queue.evict(consumer.id, force=True)

    def delivered(self, store: Store, *shards: Shard) -> Counter[Message]:
        """Everything that a client gets out of the shards, until they say that they hold nothing; a group in order."""
        found: Counter[Message] = Counter()
        for _ in range(TRIES):
            for shard in shards:
                listed = of_slices(store.peek(Peek(shard, 1000, bodies=False)).slices)
                taken = self._take(store, shard)
                assert not shard.is_grouped or list(taken) == list(listed[: len(taken)]), "not in order"
                found.update(taken)
            if not any(store.peek(Peek(shard, 1, bodies=False)).slices for shard in shards):
                return found
            self.harness.advance(0.5 * self.harness.time_scale)
        raise AssertionError(f"not delivered: {[store.peek(Peek(shard, 9)) for shard in shards]}")

    def _take(self, store: Store, shard: Shard) -> Sequence[Message]:
        token = os.urandom(16)
        slices = store.claim(Claim(shard, token, 100, self.lease)).slices
        spans = tuple(Span(each.bundle.id, each.first, each.count, token) for each in slices)
        if spans:
            store.acknowledge(Acknowledge(shard, spans))
        return of_slices(slices)

    def audit(self, queue: str = "") -> list[str]:
        """Name what is wrong with the rows of a queue, and what a drain and a sweep leave."""
        queue = queue or self.queue
        raw = self.harness.raw_queue(queue)
        found = broken_rows(raw) + hidden(raw, self.healthy) + drain(queue, self.healthy)
        return found + remains(self.harness.raw_queue(queue))
