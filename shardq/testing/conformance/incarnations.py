"""Contract: a queue that is created again under its name is another queue."""

# ruff: noqa: D102 -- the name of a test is its sentence
from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from shardq.base.shard import Shard
from shardq.errors import QueueNotFound
from shardq.storage.requests import Bundle, DedupeEntry, Fenced, QueueRecord
from shardq.testing.conformance.bench import Bench
from shardq.testing.conformance.contract import Contract
from shardq.testing.messages import of_bundle, of_bundles, of_spans

__all__ = ["IncarnationContract"]


class IncarnationContract(Contract):
    """A queue has nothing of an earlier one of its name."""

    @pytest.mark.parametrize("end", ["wait", "held", "ack", "moved", "keep", "remove", "purge"])
    def test_the_same_bundles_are_stored_and_delivered_again(self, bench: Bench, end: str) -> None:
        # Given a bundle that is stored, or was finished in some way, when its queue is dropped
        bundle = bench.given(3)
        other = bench.given(1, priority=4)
        _finish(bench, bundle, end)
        # When the queue is created again and the same bundles are sent
        _again(bench)
        bench.append(bundle, other, by=bench.other)
        # Then they are there, and all of the queue works on them
        assert bench.stored() == of_bundles(bundle, other)
        assert bench.shard in bench.other.shards(bench.queue)
        assert bench.probe().priority == 0
        taken = bench.claim()
        assert taken.messages == of_bundles(bundle, other)
        assert taken.deliveries == {1}
        assert bench.ack(*taken.spans) == Fenced()
        assert bench.leftovers() == {}

    def test_a_bundle_that_was_forwarded_to_it_before_is_forwarded_again(self, bench: Bench) -> None:
        new = bench.bundle(2)
        for _ in range(2):
            bench.given()
            bench.forward(bench.claim().spans, new)
            taken = bench.claim()
            assert taken.messages == of_bundle(new)
            bench.ack(*taken.spans)
            _again(bench)

    def test_it_remembers_the_bundles_that_it_finished_itself(self, bench: Bench) -> None:
        bundle = bench.given(2)
        bench.ack(*bench.claim().spans)
        _again(bench)
        bench.append(bundle)
        taken = bench.claim()
        assert taken.messages == of_bundle(bundle)
        bench.ack(*taken.spans)
        bench.append(bundle, by=bench.other)
        assert bench.stored() == []

    def test_nothing_of_before_is_in_it(self, bench: Bench) -> None:
        other = bench.shard_of(bench.queue, 7, 3)
        bench.given(3, delay=30)
        bench.given(3, shard=other)
        bench.ack(*bench.claim(1, shard=other).spans, keep=True, shard=other)
        bench.other.reserve_keys(bench.queue, [DedupeEntry("k", "m1")], bench.duration(600))
        bench.other.confirm_keys(bench.queue, [DedupeEntry("k", "m1")])
        bench.register_consumer("before", 600)
        _again(bench)
        bench.advance(40)
        for shard in (bench.shard, other):
            assert bench.claim(shard=shard).messages == []
            assert bench.peek(shard=shard) == bench.peek(processed=True, shard=shard) == []
            assert bench.other.probe([shard], deep=True)[0].empty
            assert bench.other.count(shard).oldest is None
        assert bench.other.shards(bench.queue) == ()
        assert bench.register_consumer("after", 60, by=bench.other) == ("after",)
        entry = DedupeEntry("k", "m2")
        assert bench.other.reserve_keys(bench.queue, [entry], bench.duration(60)) == (entry,)

    def test_a_client_of_the_one_before_disturbs_nothing(self, bench: Bench) -> None:
        # Given a client that holds messages and keys of a queue, and another one that creates it anew
        bundle = bench.given(6)
        stale = bench.claim(5)
        bench.store.reserve_keys(bench.queue, [DedupeEntry("k", "m1")], bench.duration(600))
        bench.register_consumer("before", 600)
        _again(bench)
        bench.append(bundle, by=bench.other)
        held = bench.claim(4, lease=600, by=bench.other)
        entry = DedupeEntry("k", "m2")
        assert bench.other.reserve_keys(bench.queue, [entry], bench.duration(600)) == (entry,)
        # When the first client continues as if nothing had happened
        uses: tuple[Callable[[], Fenced], ...] = (
            lambda: bench.extend(stale.span(0, 1), lease=900, starts=True),
            lambda: bench.release(stale.span(1, 1), started=False),
            lambda: bench.ack(stale.span(2, 1)),
            lambda: bench.ack(stale.span(3, 1), keep=True, moved=True),
            lambda: bench.forward((stale.span(4, 1),), bench.bundle()),
        )
        for use in uses:
            with suppress(QueueNotFound):
                fenced = use()
                assert sum(span.count for span in (*fenced.lost, *fenced.gone)) == 1
        with suppress(QueueNotFound):
            bench.store.confirm_keys(bench.queue, [DedupeEntry("k", "m1")])
        with suppress(QueueNotFound):
            bench.store.deregister_consumer(bench.queue, "before")
        # Then everything is as the second one left it
        assert bench.held() == sorted(held.messages)
        assert bench.stored() == of_bundle(bundle)
        assert bench.history() == []
        assert bench.other.reserve_keys(bench.queue, [entry], bench.duration(600)) == (entry,)
        assert bench.ack(*held.spans, by=bench.other) == Fenced()
        assert bench.claim(by=bench.other).messages == of_bundle(bundle, 4)

    def test_what_a_client_of_the_one_before_sends_is_refused_or_delivered(self, bench: Bench) -> None:
        bench.given(2)
        _again(bench)
        bundle, sent = bench.bundle(2), True
        try:
            bench.append(bundle)
        except QueueNotFound:
            sent = False
        assert bench.claim(by=bench.other).messages == (of_bundle(bundle) if sent else [])

    def test_a_client_that_repeats_its_claim_of_before_takes_nothing_from_another(self, bench: Bench) -> None:
        bundle = bench.given(2)
        stale = bench.claim(lease=600)
        _again(bench)
        bench.append(bundle, by=bench.other)
        held = bench.claim(lease=600, by=bench.other)
        with suppress(QueueNotFound):
            assert bench.claim(token=stale.token).messages == []
        assert bench.ack(*held.spans, by=bench.other) == Fenced()

    def test_what_was_moved_before_is_gone_from_it(self, bench: Bench) -> None:
        bundle = bench.given(2)
        taken = bench.claim()
        bench.ack(*taken.spans, moved=True)
        _again(bench)
        with suppress(QueueNotFound):
            fenced = bench.ack(*taken.spans)
            assert (sorted(of_spans(fenced.gone)), fenced.lost) == (of_bundle(bundle), ())

    def test_a_sweep_leaves_it_alone(self, bench: Bench) -> None:
        bundle = bench.given(3)
        bench.claim(1)
        _again(bench)
        bench.append(bundle, by=bench.other)
        bench.sweep()
        assert bench.claim(by=bench.other).messages == of_bundle(bundle)

    def test_it_may_be_created_many_times(self, bench: Bench) -> None:
        bundle = bench.bundle(2)
        for _ in range(4):
            bench.append(bundle)
            assert bench.claim(by=bench.other).messages == of_bundle(bundle)
            _again(bench)
        assert bench.stored() == []


def _again(bench: Bench) -> None:
    """Drop the queue of the bench and create it again, with the other client."""
    assert bench.other.drop_queue(bench.queue)
    assert bench.other.create_queue(QueueRecord(bench.queue, b"settings", 1))


def _finish(bench: Bench, bundle: Bundle, end: str) -> None:
    shard: Shard = bench.shard
    match end:
        case "wait":
            return
        case "remove":
            for position in range(bundle.count):
                bench.store.remove(shard, bundle.id, position)
        case "purge":
            bench.store.purge(shard)
        case _:
            taken = bench.claim()
            if end != "held":
                bench.ack(*taken.spans, keep=end == "keep", moved=end == "moved")
