"""Contracts: a dropped queue is gone with all that it held, and stays so.

Once every message is finished, nothing of it remains.
"""

# ruff: noqa: D102 -- the name of a test is its sentence

from __future__ import annotations

from contextlib import suppress

import pytest

from shardq.errors import QueueNotFound
from shardq.storage.requests import Append, DedupeEntry, QueueRecord, ShardCounts
from shardq.testing.conformance.bench import Bench
from shardq.testing.conformance.contract import Contract, exact_time
from shardq.testing.messages import of_bundle

__all__ = ["DropContract", "LeftoverContract"]


class DropContract(Contract):
    """The end of a queue."""

    def test_a_dropped_queue_is_gone_for_all_clients(self, bench: Bench) -> None:
        name = bench.new_queue()
        assert bench.store.drop_queue(name) is True
        assert bench.store.load_queue(name) is None
        assert bench.other.load_queue(name) is None
        assert name not in bench.other.list_queues()

    def test_dropping_what_is_not_there_is_false(self, bench: Bench) -> None:
        name = bench.new_queue()
        assert bench.store.drop_queue(name) is True
        assert bench.store.drop_queue(name) is False
        assert bench.other.drop_queue(bench.new_name()) is False

    def test_a_queue_is_dropped_only_as_it_was_seen(self, bench: Bench) -> None:
        # Given a record that was seen, and changed since
        name = bench.new_queue()
        seen = bench.store.load_queue(name)
        assert seen is not None
        changed = QueueRecord(name, b'{"shards":3}', seen.version + 1)
        assert bench.other.update_queue(changed)
        # Then the queue is not dropped by it, nor by one that was never there
        assert bench.store.drop_queue(name, seen) is False
        assert bench.store.drop_queue(name, QueueRecord(name, seen.settings, changed.version)) is False
        assert bench.store.drop_queue(name, QueueRecord(name, changed.settings, seen.version)) is False
        bench.given(shard=bench.shard_of(name, 0, 0))
        assert bench.other.load_queue(name) == changed
        # And by the present one it is, once
        assert bench.store.drop_queue(name, changed) is True
        assert bench.other.load_queue(name) is None
        assert bench.store.drop_queue(name, changed) is False

    def test_a_dropped_queue_leaves_nothing_at_all(self, bench: Bench) -> None:
        # Given messages in every state, in several shards, a key, a consumer
        name = bench.new_queue()
        shards = [bench.shard_of(name, time_shard, number) for time_shard in (0, 7) for number in (0, 12)]
        for shard in shards:
            bench.given(5, shard=shard)
            bench.given(2, priority=1, delay=60, shard=shard)
            taken = bench.claim(3, shard=shard)
            bench.ack(taken.span(0, 1), keep=True, shard=shard)
            bench.ack(taken.span(2, 1), shard=shard)
        bench.store.reserve_keys(name, [DedupeEntry("key", "m1")], bench.duration(60))
        bench.register_consumer("consumer", 60, name)
        # When the queue is dropped by another client
        bench.drop(name)
        # Then no row of any kind remains, but for the ids that a store may remember for a while
        rows = {kind: n for kind, n in bench.harness.raw_leftovers(name).items() if n}
        assert set(rows) <= {"finished", "moved"}
        assert all(not bench.harness.raw_entries(shard) for shard in shards)
        assert all(not bench.harness.raw_bundles(shard) for shard in shards)

    def test_an_append_to_a_queue_that_never_was_is_refused(self, bench: Bench) -> None:
        name = bench.new_name()
        with pytest.raises(QueueNotFound):
            bench.given(shard=bench.shard_of(name))
        assert bench.leftovers(name) == {}
        assert not bench.harness.raw_leftovers(name).get("shard")

    def test_a_client_cannot_append_to_a_queue_that_another_dropped(self, bench: Bench) -> None:
        name = bench.new_queue()
        shard = bench.shard_of(name)
        bundle = bench.given(shard=shard)
        bench.drop(name)
        for again in (bundle, bench.bundle()):
            with pytest.raises(QueueNotFound):
                bench.store.append(Append(shard, (again,)))
        assert bench.leftovers(name) == {}
        assert bench.harness.raw_bundles(shard) == 0

    def test_nothing_that_a_client_still_holds_brings_a_dropped_queue_back(self, bench: Bench) -> None:
        # Given a client that holds messages of a queue which another one drops
        name = bench.new_queue()
        shard = bench.shard_of(name)
        bench.given(6, shard=shard)
        taken = bench.claim(4, shard=shard)
        bench.drop(name)
        # When it continues as if nothing had happened
        bench.shard = shard
        spans = [taken.span(i, 1) for i in range(4)]
        for use in (
            lambda: bench.claim(2, token=taken.token),
            lambda: bench.extend(spans[0]),
            lambda: bench.release(spans[1]),
            lambda: bench.ack(spans[2], keep=True),
            lambda: bench.forward((spans[3],), bench.bundle()),
            lambda: bench.store.remove(shard, spans[3].bundle_id, 5),
            lambda: bench.claim(2),
        ):
            with suppress(QueueNotFound):
                use()
        # Then nothing of it is there
        assert bench.leftovers(name) == {}
        assert bench.store.load_queue(name) is None
        assert bench.harness.raw_bundles(shard) == 0

    def test_an_ack_after_a_drop_finds_the_messages_gone(self, bench: Bench) -> None:
        name = bench.new_queue()
        shard = bench.shard_of(name)
        bundle = bench.given(2, shard=shard)
        taken = bench.claim(shard=shard)
        bench.drop(name)
        with suppress(QueueNotFound):
            fenced = bench.ack(*taken.spans, shard=shard)
            assert sum(span.count for span in fenced.gone) == bundle.count
            assert fenced.lost == ()

    def test_a_queue_created_again_is_empty_and_works(self, bench: Bench) -> None:
        name = bench.new_queue()
        shard = bench.shard_of(name)
        bench.given(3, shard=shard)
        held = bench.claim(1, shard=shard)
        bench.drop(name)
        bench.new_queue(name)
        shard = bench.shard_of(name)
        assert bench.claim(shard=shard).messages == []
        assert bench.ack(*held.spans, shard=shard).lost == ()
        bundle = bench.given(2, shard=shard)
        assert bench.claim(shard=shard, by=bench.other).messages == of_bundle(bundle)

    def test_a_queue_whose_name_is_a_prefix_is_dropped_alone(self, bench: Bench) -> None:
        others = [bench.new_queue(bench.queue + end) for end in (".1", "-1", "1", "_", "a")]
        shards = [bench.shard_of(name) for name in others]
        bundles = [bench.given(2, shard=shard) for shard in shards]
        bench.given(3)
        bench.drop(bench.queue)
        for shard, bundle in zip(shards, bundles, strict=True):
            assert bench.stored(shard) == of_bundle(bundle)
            assert bench.other.load_queue(shard.queue) is not None
        assert bench.other.list_queues(bench.queue) == tuple(sorted(others))


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
