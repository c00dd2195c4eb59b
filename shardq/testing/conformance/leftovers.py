"""Contract: once every message is finished, nothing of it remains."""

# ruff: noqa: D102 -- the name of a test is its sentence
from __future__ import annotations

import pytest

from shardq.storage.requests import DedupeEntry, ShardCounts
from shardq.testing.conformance.bench import Bench
from shardq.testing.conformance.contract import Contract, exact_time

__all__ = ["LeftoverContract"]


class LeftoverContract(Contract):
    """Draining a shard by every road."""

    @pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
    def test_a_shard_drained_by_claims_of_any_size_is_empty(self, bench: Bench, limit: int) -> None:
        bench.append(*[bench.bundle(1 + i % 5, priority=i % 3) for i in range(12)])
        drained = 0
        while taken := bench.claim(limit).spans:
            drained += sum(span.count for span in taken)
            bench.ack(*taken)
        assert drained == sum(1 + i % 5 for i in range(12))
        self._nothing_is_left(bench)

    def test_a_bundle_whose_parts_took_every_road_is_gone(self, bench: Bench) -> None:
        # Given one bundle whose parts are acked, released, lapsed, taken over, removed and forwarded
        bundle = bench.given(12)
        first = bench.claim(8, lease=5)
        bench.ack(first.span(0, 1), first.span(3, 1))
        bench.release(first.span(1, 1), started=False)
        bench.extend(first.span(4, 2), lease=60)
        bench.store.remove(bench.shard, bundle.id, 5)
        bench.store.remove(bench.shard, bundle.id, 10)
        bench.advance(10)
        second = bench.claim(3, by=bench.other)
        bench.forward((first.span(4, 1),), bench.bundle(2))
        bench.ack(*first.spans)
        bench.ack(*second.spans, by=bench.other)
        # When the rest is drained
        bench.advance(100)
        bench.ack(*bench.claim().spans)
        # Then nothing of it is left
        self._nothing_is_left(bench)

    def test_messages_that_were_only_released_and_removed_leave_nothing(self, bench: Bench) -> None:
        bundle = bench.given(4)
        taken = bench.claim(3)
        bench.release(taken.span(0, 2), delay=60)
        for i in range(4):
            assert bench.store.remove(bench.shard, bundle.id, i)
        self._nothing_is_left(bench)

    def test_a_client_that_vanished_leaves_nothing_in_the_way(self, bench: Bench) -> None:
        bench.given(6)
        bench.claim(4, lease=5, by=bench.other)
        bench.other.close()
        bench.other = bench.harness.open()
        bench.advance(10)
        bench.ack(*bench.claim().spans)
        self._nothing_is_left(bench)

    @exact_time
    def test_a_late_sweep_removes_even_what_was_only_remembered(self, bench: Bench) -> None:
        # Given a drained queue with an expired key and an expired consumer
        bench.given(3)
        bench.ack(*bench.claim().spans)
        bench.store.reserve_keys(bench.queue, [DedupeEntry("key", "m")], 60_000_000)
        bench.store.register_consumer([bench.queue], "consumer", 60_000_000)
        # When it is swept a day later
        bench.advance(24 * 3600)
        assert bench.sweep() > 0
        # Then at most the directory still names its shard
        rows = {kind: n for kind, n in bench.harness.raw_leftovers(bench.queue).items() if n}
        assert set(rows) <= {"shard"}
        assert bench.sweep() == 0

    def test_a_sweep_comes_to_an_end(self, bench: Bench) -> None:
        for _ in range(1_000):  # the storage may hold leftovers of other tests
            if bench.sweep() == 0:
                break
        assert bench.sweep() == 0

    def test_a_sweep_leaves_keys_and_consumers_that_are_alive(self, bench: Bench) -> None:
        entry = DedupeEntry("key", "m")
        bench.store.reserve_keys(bench.queue, [entry], bench.duration(3600))
        bench.register_consumer("one", 3600)
        bench.sweep()
        again = DedupeEntry("key", "another")
        assert bench.store.reserve_keys(bench.queue, [again], bench.duration(3600)) == (entry,)
        assert bench.register_consumer("two", 3600) == ("one", "two")

    def _nothing_is_left(self, bench: Bench) -> None:
        assert bench.stored() == []
        assert bench.leftovers() == {}
        assert bench.other.count(bench.shard) == ShardCounts()
        assert bench.probe().empty
        assert bench.peek() == []
