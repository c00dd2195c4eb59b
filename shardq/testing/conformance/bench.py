"""The workbench of a conformance test: a queue, two clients of its storage, and a view behind them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

import msgspec

from shardq.base.clock import microseconds
from shardq.base.shard import Shard
from shardq.errors import OutcomeUnknown, StoreUnavailable
from shardq.storage.requests import (
    Acknowledge,
    Append,
    Bundle,
    Claim,
    Extend,
    Fenced,
    Finish,
    Forward,
    Peek,
    Probe,
    QueueRecord,
    Release,
    ShardCounts,
    Span,
    StoredSlice,
    Sweep,
)
from shardq.storage.store import Store
from shardq.testing.audit import broken_rows, drain, hidden, remains
from shardq.testing.harness import LASTING_KINDS, RawState, StoreHarness
from shardq.testing.messages import BundleFactory, Message, Taken, of_entries

__all__ = ["Bench"]

T = TypeVar("T")

LONG = 600.0
"""Seconds of a lease that no test outlasts, however slow the machine is. A test that lets a lease end gives another."""


class Bench:
    """Everything that a test needs to say its sentence.

    ``store`` is the client under test and ``other`` an independent one of the same storage. Calls without a shard or a
    client are made in ``shard`` by ``store``, in bundles of ``group``. Seconds are those of the test: they are
    stretched by the harness's time scale.
    """

    def __init__(self, harness: StoreHarness) -> None:
        self.harness = harness
        self.store = harness.open()
        self.other = harness.open()
        self.make = BundleFactory(self.store.now)
        self.queues: list[str] = []
        self.shards: list[Shard] = []
        self.queue = self.new_queue()
        self.shard = self.shard_of(self.queue)
        self.group = ""

    def close(self) -> None:
        """Drop the queues and finish the clients."""
        self.harness.discard(self.store, self.queues)
        self.harness.finish(self.store)
        self.harness.finish(self.other)

    # -- queues, shards, time

    def new_name(self, suffix: str = "") -> str:
        """Return a name that no other test has."""
        return f"t{os.urandom(6).hex()}{suffix}"

    def new_queue(self, name: str = "") -> str:
        """Create a queue and return its name."""
        name = name or self.new_name()
        assert self.store.create_queue(QueueRecord(name, b"settings", 1))
        self.queues.append(name)
        return name

    def shard_of(self, queue: str, time_shard: int = 0, number: int = 0) -> Shard:
        """Name a shard; its books are checked when the test ends."""
        shard = Shard(queue, time_shard, number)
        self.shards.append(shard)
        return shard

    def register_consumer(
        self, consumer: str, lifetime: float, *queues: str, by: Store | None = None
    ) -> tuple[str, ...]:
        """Enlist a consumer for ``lifetime`` seconds.

        Returns the live ones of the last queue, or of the bench's own.
        """
        registration = (by or self.store).register_consumer(
            queues or (self.queue,), consumer, self.duration(lifetime)
        )[-1]
        assert registration is not None
        return registration.consumers

    def drop(self, queue: str) -> None:
        """Drop the queue with the other client; its books are not checked any more."""
        assert self.other.drop_queue(queue)
        self.shards = [shard for shard in self.shards if shard.queue != queue]

    def forget(self, shard: Shard | None = None, *, by: Store | None = None) -> bool:
        """Take the shard out of the directory, which may need a second try; False when it is not empty."""
        store, shard = by or self.store, shard or self.shard
        for _ in range(300):
            if store.drop_if_empty(shard):
                return True
            if store.count(shard) != ShardCounts():
                return False
            time.sleep(0.01)
        return False

    def duration(self, seconds: float) -> int:
        """Convert seconds of the test to microseconds of the store."""
        return microseconds(seconds * self.harness.time_scale)

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` of the test pass."""
        self.harness.advance(seconds * self.harness.time_scale)

    # -- what a client does

    def bundle(
        self,
        count: int = 1,
        *,
        priority: int = 0,
        delay: float = 0,
        ttl: float | None = None,
        data: bytes | None = None,
        group: str | None = None,
    ) -> Bundle:
        """Make a bundle without storing it."""
        scale = self.harness.time_scale
        expiry = None if ttl is None else ttl * scale
        group = self.group if group is None else group
        return self.make(count, priority=priority, delay=delay * scale, ttl=expiry, data=data, group=group)

    def append(self, *bundles: Bundle, shard: Shard | None = None, by: Store | None = None) -> None:
        """Store the bundles."""
        (by or self.store).append(Append(shard or self.shard, bundles))

    def given(
        self,
        count: int = 1,
        *,
        priority: int = 0,
        delay: float = 0,
        group: str | None = None,
        shard: Shard | None = None,
    ) -> Bundle:
        """Make a bundle and store it."""
        bundle = self.bundle(count, priority=priority, delay=delay, group=group)
        self.append(bundle, shard=shard)
        return bundle

    def claim(
        self,
        limit: int = 1000,
        *,
        lease: float = LONG,
        token: bytes = b"",
        started: bool = True,
        finish: Finish | None = None,
        shard: Shard | None = None,
        by: Store | None = None,
    ) -> Taken:
        """Claim, again while other claims get ahead of it."""
        request = Claim(
            shard or self.shard,
            token or os.urandom(16),
            limit,
            self.duration(lease),
            started=started,
            finish=finish,
        )
        claimed = (by or self.store).claim(request)
        for _ in range(500):
            if not claimed.contended:
                break
            time.sleep(0.01)
            claimed = (by or self.store).claim(request)
        return Taken(request.token, claimed)

    def ack(
        self,
        *spans: Span,
        keep: bool = False,
        moved: bool = False,
        shard: Shard | None = None,
        by: Store | None = None,
    ) -> Fenced:
        """Finish the messages."""
        return (by or self.store).acknowledge(Acknowledge(shard or self.shard, spans, keep, moved))

    def extend(
        self,
        *spans: Span,
        lease: float = LONG,
        shorten: bool = True,
        starts: bool = False,
        blocks: bool = False,
        by: Store | None = None,
    ) -> Fenced:
        """Hold the messages for longer."""
        request = Extend(self.shard, spans, self.duration(lease), shorten, starts, blocks)
        return (by or self.store).extend(request)

    def release(
        self, *spans: Span, delay: float = 0, started: bool = True, by: Store | None = None
    ) -> Fenced:
        """Give the messages back."""
        return (by or self.store).release(Release(self.shard, spans, self.duration(delay), started))

    def forward(
        self,
        spans: tuple[Span, ...],
        *bundles: Bundle,
        to: Shard | None = None,
        keep: bool = False,
        in_place: bool = False,
    ) -> Fenced:
        """Finish the messages and store the bundles in one step."""
        acknowledge = Acknowledge(self.shard, spans, keep)
        return self.store.forward(Forward(acknowledge, Append(to or self.shard, bundles), in_place))

    def probe(self, shard: Shard | None = None, *, deep: bool = False, by: Store | None = None) -> Probe:
        """Probe one shard with the other client."""
        (probe,) = (by or self.other).probe([shard or self.shard], deep=deep)
        return probe

    def peek(
        self,
        limit: int = 1000,
        *,
        processed: bool = False,
        bodies: bool = True,
        held: bool = False,
        shard: Shard | None = None,
    ) -> list[StoredSlice]:
        """Peek at all pages with the other client."""
        slices: list[StoredSlice] = []
        request = Peek(shard or self.shard, limit, processed=processed, bodies=bodies, held=held)
        while True:
            page = self.other.peek(request)
            slices += page.slices
            if not page.after:
                return slices
            request = msgspec.structs.replace(request, after=page.after)

    def sweep(self, *, history_before: int = 0) -> int:
        """Sweep the queue until nothing is left to remove; returns how many things were removed."""
        removed = 0
        for _ in range(1000):
            swept = self.store.sweep(Sweep(self.queue, history_before))
            if not swept:
                break
            removed += swept
        return removed

    def persist(self, do: Callable[[], T]) -> T:
        """Repeat a call after temporary faults, as every caller of a store does."""
        for _ in range(100):
            try:
                return do()
            except (StoreUnavailable, OutcomeUnknown):
                time.sleep(0.01)
        return do()

    # -- what is really there

    def waiting(self, shard: Shard | None = None) -> list[Message]:
        """Read from the storage which messages wait, due or not."""
        return self._raw(shard, RawState.WAITING)

    def held(self, shard: Shard | None = None) -> list[Message]:
        """Read from the storage which messages a claim holds."""
        return self._raw(shard, RawState.HELD)

    def history(self, shard: Shard | None = None) -> list[Message]:
        """Read from the storage which messages are kept as processed."""
        return self._raw(shard, RawState.PROCESSED)

    def stored(self, shard: Shard | None = None) -> list[Message]:
        """Read from the storage which messages are not finished."""
        return self._raw(shard, RawState.WAITING, RawState.HELD)

    def _raw(self, shard: Shard | None, *states: RawState) -> list[Message]:
        return of_entries(self.harness.raw_entries(shard or self.shard), *states)

    def leftovers(self, queue: str = "") -> dict[str, int]:
        """Read from the storage what is left of a queue's messages: entries, bundles, acked positions."""
        rows = self.harness.raw_leftovers(queue or self.queue)
        return {kind: count for kind, count in rows.items() if count and kind not in LASTING_KINDS}

    def check_books(self) -> None:
        """Check that counts, directory and raw entries of every shard used agree; the audit reads the bodies."""
        for shard in self.shards:
            entries = self.harness.raw_entries(shard)
            stored = of_entries(entries, RawState.WAITING, RawState.HELD)
            history = of_entries(entries, RawState.PROCESSED)
            assert len(set(stored)) == len(stored), "a message is stored twice"
            counts = self.other.count(shard)
            assert counts.ready + counts.delayed + counts.in_flight == len(stored)
            assert counts.processed == len(history)
            assert not stored or shard in self.other.shards(shard.queue)

    def audit(self) -> None:
        """Check that every message is found through the port, and that nothing remains of a drained queue."""
        for queue in self.queues:
            raw = self.harness.raw_queue(queue)
            found = broken_rows(raw) + hidden(raw, self.other) + drain(queue, self.other)
            found += remains(self.harness.raw_queue(queue))
            assert not found, found
