"""Contract: remove and purge take messages away whatever their state."""

# ruff: noqa: D102 -- the name of a test is its sentence
from __future__ import annotations

from shardq.storage.requests import Fenced, ShardCounts
from shardq.testing.conformance.bench import Bench
from shardq.testing.conformance.contract import Contract
from shardq.testing.messages import of_bundle, of_spans

__all__ = ["RemovingContract"]


class RemovingContract(Contract):
    """Removing one message, purging a shard."""

    def test_a_removed_message_is_not_delivered(self, bench: Bench) -> None:
        bundle = bench.given(3)
        assert bench.store.remove(bench.shard, bundle.id, 1) is True
        assert bench.waiting() == [*of_bundle(bundle, 0, 1), *of_bundle(bundle, 2)]
        assert sorted(bench.claim(by=bench.other).messages) == [
            *of_bundle(bundle, 0, 1),
            *of_bundle(bundle, 2),
        ]

    def test_what_is_not_stored_cannot_be_removed(self, bench: Bench) -> None:
        bundle = bench.given(2)
        assert bench.store.remove(bench.shard, bundle.id, 2) is False
        assert bench.store.remove(bench.shard, bench.bundle().id, 0) is False
        assert bench.store.remove(bench.shard_of(bench.queue, 0, 1), bundle.id, 0) is False
        assert bench.store.remove(bench.shard, bundle.id, 0) is True
        assert bench.other.remove(bench.shard, bundle.id, 0) is False
        assert bench.waiting() == of_bundle(bundle, 1)

    def test_removing_every_message_removes_the_bundle(self, bench: Bench) -> None:
        bundle = bench.given(4)
        for i in (2, 0, 3, 1):
            assert bench.store.remove(bench.shard, bundle.id, i)
        assert bench.leftovers() == {}
        assert bench.claim().messages == []

    def test_a_message_is_removed_from_the_middle_of_a_held_slice(self, bench: Bench) -> None:
        bundle = bench.given(5)
        taken = bench.claim()
        assert bench.other.remove(bench.shard, bundle.id, 2) is True
        assert bench.held() == [*of_bundle(bundle, 0, 2), *of_bundle(bundle, 3)]
        fenced = bench.ack(*taken.spans)
        assert of_spans(fenced.gone) == of_bundle(bundle, 2, 1)
        assert fenced.lost == ()
        assert bench.leftovers() == {}

    def test_the_neighbours_of_a_removed_message_can_be_extended_and_released(self, bench: Bench) -> None:
        bundle = bench.given(5)
        taken = bench.claim(lease=10)
        bench.store.remove(bench.shard, bundle.id, 2)
        assert of_spans(bench.extend(*taken.spans, lease=60).gone) == of_bundle(bundle, 2, 1)
        assert of_spans(bench.release(*taken.spans).gone) == of_bundle(bundle, 2, 1)
        again = bench.claim()
        assert sorted(again.messages) == [*of_bundle(bundle, 0, 2), *of_bundle(bundle, 3)]
        assert again.deliveries == {2}

    def test_a_delayed_message_is_removed(self, bench: Bench) -> None:
        bundle = bench.given(1, delay=60)
        assert bench.store.remove(bench.shard, bundle.id, 0)
        assert bench.leftovers() == {}

    def test_a_processed_message_is_removed(self, bench: Bench) -> None:
        bundle = bench.given(2)
        bench.ack(*bench.claim().spans, keep=True)
        assert bench.store.remove(bench.shard, bundle.id, 0)
        assert bench.history() == of_bundle(bundle, 1)
        assert bench.store.remove(bench.shard, bundle.id, 1)
        assert bench.leftovers() == {}

    def test_a_purge_removes_every_state_and_tells_how_many(self, bench: Bench) -> None:
        bench.given(5)
        bench.given(2, delay=60)
        bench.claim(3)
        assert bench.store.purge(bench.shard) == 7
        assert bench.stored() == []
        assert bench.leftovers() == {}
        assert bench.other.count(bench.shard) == ShardCounts()
        assert bench.store.purge(bench.shard) == 0

    def test_messages_that_are_purged_while_held_are_gone(self, bench: Bench) -> None:
        bundle = bench.given(4)
        taken = bench.claim(3)
        bench.other.purge(bench.shard)
        for use in (bench.extend, bench.release, bench.ack):
            fenced = use(*taken.spans)
            assert sorted(of_spans(fenced.gone)) == of_bundle(bundle, 0, 3)
            assert fenced.lost == ()
        assert bench.claim(token=taken.token).messages == []

    def test_a_purge_of_a_partly_acked_shard_counts_what_was_left(self, bench: Bench) -> None:
        bench.given(6)
        taken = bench.claim(4)
        bench.ack(taken.span(0, 1), taken.span(2, 1))
        assert bench.store.purge(bench.shard) == 4
        assert bench.leftovers() == {}

    def test_a_purge_leaves_the_history(self, bench: Bench) -> None:
        bundle = bench.given(4)
        taken = bench.claim(2)
        bench.ack(*taken.spans, keep=True)
        assert bench.store.purge(bench.shard) == 2
        assert bench.history() == of_bundle(bundle, 0, 2)
        assert [each.bundle for each in bench.peek(processed=True)] == [bundle] * len(
            bench.peek(processed=True)
        )

    def test_a_purge_leaves_other_shards_alone(self, bench: Bench) -> None:
        others = [bench.shard_of(bench.queue, 0, 1), bench.shard_of(bench.new_queue(bench.queue + "0"))]
        bundles = [bench.given(2, shard=shard) for shard in others]
        bench.given(2)
        assert bench.store.purge(bench.shard) == 2
        assert [bench.stored(shard) for shard in others] == [of_bundle(bundle) for bundle in bundles]

    def test_a_purged_shard_takes_new_messages(self, bench: Bench) -> None:
        bench.given(3)
        bench.store.purge(bench.shard)
        bundle = bench.given(2)
        taken = bench.claim()
        assert taken.messages == of_bundle(bundle)
        assert bench.ack(*taken.spans) == Fenced()
