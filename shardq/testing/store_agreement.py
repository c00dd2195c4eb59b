"""The rules for a store at any time in the life of its messages, compared with a dict."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import ClassVar

from hypothesis.stateful import RuleBasedStateMachine, invariant

from shardq.base.clock import microseconds
from shardq.base.shard import GROUP_TIME_SHARD, Shard
from shardq.storage.requests import (
    BLOCKED,
    Acknowledge,
    Claim,
    Claimed,
    Peek,
    Probe,
    QueueRecord,
    Span,
    Sweep,
)
from shardq.storage.store import Store
from shardq.testing.harness import LASTING_KINDS, RawState, StoreHarness
from shardq.testing.messages import BundleFactory, Message, of_entries, of_slices
from shardq.testing.store_model import GroupModel, ShardModel

__all__ = ["PastClaim", "StoreAgreement"]

HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class PastClaim:
    """A claim of the history, whatever has become of it."""

    shard: Shard
    token: bytes
    spans: tuple[Span, ...]
    started: bool
    repeatable: bool = True  # False: it finished messages, which only its client is answered again


class StoreAgreement(RuleBasedStateMachine):
    """Two clients of a store, a model of each shard, and what has to agree; the rules are the subclass's."""

    harness: ClassVar[StoreHarness]

    def __init__(self) -> None:
        super().__init__()
        self.clients: tuple[Store, Store] = (self.harness.open(), self.harness.open())
        self.store = self.clients[0]
        self.queue = f"m{os.urandom(6).hex()}"
        self.store.create_queue(QueueRecord(self.queue, b"", 1))
        self.make = BundleFactory(self.store.now)
        self.models = {Shard(self.queue, 0, number): ShardModel() for number in (0, 1)}
        if self.store.capabilities.groups:
            self.models[Shard(self.queue, GROUP_TIME_SHARD, 1)] = GroupModel()
        self.shards = tuple(self.models)
        self.claims: list[PastClaim] = []

    # -- what holds at any time

    @invariant()
    def the_storage_holds_what_the_model_holds(self) -> None:
        """Compare all messages in the storage, waiting, held or processed, with the model."""
        for shard, model in self.models.items():
            entries = self.harness.raw_entries(shard)
            assert of_entries(entries, RawState.WAITING) == model.keys(held=False), "waiting"
            assert of_entries(entries, RawState.HELD) == model.keys(held=True), "held"
            assert of_entries(entries, RawState.PROCESSED) == sorted(model.history), "processed"
            stored = bool(model.messages or model.history)
            assert (self.harness.raw_bundles(shard) > 0) == stored, "bodies without messages, or the reverse"

    @invariant()
    def the_counts_agree(self) -> None:
        """Check the counts; a lapsed lease may count as ready or as in flight."""
        now = self._moment()
        for shard, model in self.models.items():
            counts = self.store.count(shard)
            free = [each for each in model.messages.values() if each.token is None]
            ready = sum(each.due <= now for each in free)
            assert counts.delayed == len(free) - ready
            assert counts.ready >= ready
            assert counts.ready + counts.delayed + counts.in_flight == len(model.messages)
            assert counts.processed == len(model.history)

    @invariant()
    def the_listing_and_the_probe_agree(self) -> None:
        """Peek shows every message once, and the probe shows the first that can be claimed."""
        probes = self.store.probe(self.shards)
        for (shard, model), probe in zip(self.models.items(), probes, strict=True):
            listed = self._peek(shard)
            assert sorted(listed) == sorted(model.messages), "peek"
            if isinstance(model, GroupModel):
                for group in model.groups():
                    keys = [each.key for each in group]
                    assert [key for key in listed if key in keys] == keys, "the order of a group in peek"
            assert self.harness.real_time or probe == self._expected_probe(shard, model), "probe"

    def _peek(self, shard: Shard) -> list[Message]:
        messages: list[Message] = []
        after = b""
        while True:
            page = self.store.peek(Peek(shard, 5, after=after))
            messages += of_slices(page.slices)
            after = page.after
            if not after:
                return messages

    def _expected_probe(self, shard: Shard, model: ShardModel) -> Probe:
        now = self._moment()
        ahead = model.ahead(now)
        first = next(iter(model.deliverable(now)), None)
        return Probe(
            shard,
            priority=first.bundle.priority if first else None,
            due=first.due if first else None,
            next_due=min(ahead, default=None),
        )

    # -- the end

    def teardown(self) -> None:
        """Drain the queue; nothing may be left."""
        try:
            for shard, model in self.models.items():
                self._drain(shard, model)
            self._sweep_everything()
            rows = self.harness.raw_leftovers(self.queue)
            left = {kind: n for kind, n in rows.items() if n and kind not in LASTING_KINDS}
            assert left == {}, f"left after draining: {left}"
        finally:
            self.store.drop_queue(self.queue)
            for client in self.clients:
                client.close()

    def _drain(self, shard: Shard, model: ShardModel) -> None:
        drained: list[Message] = []
        if self.harness.real_time:
            self.store.purge(shard)
            return
        blocked = model.held_by(BLOCKED)
        spans = tuple(Span(each.bundle.id, each.position, 1, BLOCKED) for each in blocked)
        assert self.store.acknowledge(Acknowledge(shard, spans)).lost == (), "what blocks is not held"
        model.finish(blocked)
        self.harness.advance(HOUR)
        while True:
            token = os.urandom(16)
            slices = self._ask(Claim(shard, token, 3, microseconds(HOUR))).slices
            if not slices:
                break
            drained += of_slices(slices)
            spans = tuple(Span(each.bundle.id, each.first, each.count, token) for each in slices)
            self.store.acknowledge(Acknowledge(shard, spans))
        assert sorted(drained) == sorted(model.messages), "drained other messages than were left"

    def _sweep_everything(self) -> None:
        self._pass()
        while self.store.sweep(Sweep(self.queue, self._moment() + 1)):
            pass

    # -- asking

    def _ask(self, request: Claim) -> Claimed:
        claimed = self.store.claim(request)
        while claimed.contended:
            claimed = self.store.claim(request)
        return claimed

    # -- time

    def _seconds(self, seconds: float) -> float:
        return HOUR if seconds and self.harness.real_time else seconds

    def _duration(self, seconds: float) -> int:
        return microseconds(self._seconds(seconds))

    def _moment(self) -> int:
        return self.store.now()

    def _pass(self) -> None:
        """Keep two moments of a real clock apart."""
        if self.harness.real_time:
            self.harness.advance(0.002)
