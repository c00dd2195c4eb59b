"""Contracts: remove and purge take messages away whatever their state.

A forward may take a message that nobody holds, and never one that somebody holds. It is for stores that can do that:
others refuse it with nothing changed.
"""

# ruff: noqa: D102 -- the name of a test is its sentence

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from shardq.errors import UnsupportedByStore
from shardq.storage.requests import PENDING, Bundle, Claim, Fenced, ShardCounts, Span
from shardq.testing.conformance.bench import Bench
from shardq.testing.conformance.contract import Contract, run_together
from shardq.testing.conformance.groups import GroupedContract
from shardq.testing.messages import of_bundle, of_bundles, of_spans

__all__ = ["PendingContract", "RemovingContract"]


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


class PendingContract(GroupedContract):
    """Exchanging a message that waits for another one."""

    def test_a_message_that_waits_is_exchanged_and_its_neighbours_stay(self, bench: Bench) -> None:
        bundle, new = bench.given(3), bench.bundle(priority=4)
        assert exchange(bench, bundle, 1, new) == Fenced()
        assert bench.waiting() == sorted([*of_bundle(bundle, 0, 1), *of_bundle(bundle, 2), *of_bundle(new)])
        assert new in [each.bundle for each in bench.claim(by=bench.other).slices]

    def test_a_message_that_is_delayed_is_exchanged_for_one_that_is_due(self, bench: Bench) -> None:
        bundle, new = bench.given(delay=600), bench.bundle()
        assert exchange(bench, bundle, 0, new) == Fenced()
        assert bench.claim(by=bench.other).messages == of_bundle(new)

    def test_a_message_that_is_held_is_lost_and_nothing_happens(self, bench: Bench) -> None:
        bundle = bench.given(2)
        taken = bench.claim(1, by=bench.other)
        fenced = exchange(bench, bundle, 0, bench.bundle())
        assert of_spans(fenced.lost) == of_bundle(bundle, 0, 1)
        assert fenced.gone == ()
        assert bench.stored() == of_bundle(bundle)
        assert bench.ack(*taken.spans) == Fenced()

    def test_a_message_that_was_released_is_exchanged(self, bench: Bench) -> None:
        bundle, new = bench.given(2), bench.bundle()
        bench.release(*bench.claim().spans, delay=600)
        assert exchange(bench, bundle, 1, new) == Fenced()
        assert sorted(bench.waiting()) == sorted([*of_bundle(bundle, 0, 1), *of_bundle(new)])

    def test_a_message_whose_lease_has_run_out_is_exchanged_and_lost_to_its_holder(
        self, bench: Bench
    ) -> None:
        bundle, new = bench.given(2), bench.bundle()
        taken = bench.claim(lease=5)
        bench.advance(10)
        assert exchange(bench, bundle, 0, new) == Fenced()
        fenced = bench.ack(*taken.spans, by=bench.store)
        assert of_spans(fenced.lost) == of_bundle(bundle, 0, 1)
        assert fenced.gone == ()
        assert bench.stored() == of_bundle(new)

    def test_what_is_not_stored_is_gone_and_nothing_happens(self, bench: Bench) -> None:
        bundle = bench.given(2)
        bench.ack(bench.claim(1).spans[0])
        fenced = exchange(bench, bundle, 0, bench.bundle())
        assert of_spans(fenced.gone) == of_bundle(bundle, 0, 1)
        assert exchange(bench, bench.bundle(), 0, bench.bundle()).lost == ()
        assert bench.stored() == of_bundle(bundle, 1)

    def test_a_repeated_exchange_changes_nothing(self, bench: Bench) -> None:
        bundle, new = bench.given(), bench.bundle()
        exchange(bench, bundle, 0, new)
        fenced = exchange(bench, bundle, 0, new)
        assert of_spans(fenced.lost) == of_bundle(bundle)
        assert bench.stored() == of_bundle(new)

    def test_of_claims_and_exchanges_at_the_same_time_each_message_obeys_one(self, bench: Bench) -> None:
        bundles = [bench.given() for _ in range(8)]
        new = [bench.bundle() for _ in bundles]
        exchange(bench, bench.given(delay=600), 0, bench.bundle(delay=600))  # or skip
        answers: dict[int, Fenced] = {}

        def exchange_one(number: int) -> None:
            answers[number] = bench.persist(lambda: exchange(bench, bundles[number], 0, new[number]))

        def claim_one() -> None:
            bench.persist(
                lambda: bench.other.claim(Claim(bench.shard, os.urandom(16), 1, bench.duration(600)))
            )

        exchanges: list[Callable[[], None]] = [lambda each=each: exchange_one(each) for each in range(8)]  # type: ignore[misc]
        run_together([*exchanges[:4], *[claim_one] * 4])
        run_together([*exchanges[4:], *[claim_one] * 4])
        expected = [
            (new if answers[number] == Fenced() else bundles)[number] for number in range(len(bundles))
        ]
        stored = set(bench.stored())
        assert all(set(of_bundle(each)) <= stored for each in expected)
        assert len(stored) == len(bundles) + 1

    def test_a_message_of_a_group_keeps_its_place(self, grouped: Bench) -> None:
        bundles = [grouped.given() for _ in range(3)]
        new = grouped.bundle()
        assert exchange(grouped, bundles[1], 0, new, in_place=True) == Fenced()
        assert grouped.claim(by=grouped.other).messages == of_bundles(bundles[0], new, bundles[2])

    def test_the_first_message_of_a_group_can_be_put_off(self, grouped: Bench) -> None:
        bundles = [grouped.given() for _ in range(2)]
        new = grouped.bundle(delay=600)
        assert exchange(grouped, bundles[0], 0, new, in_place=True) == Fenced()
        assert grouped.claim(by=grouped.other).messages == []
        assert sorted(grouped.waiting()) == sorted(of_bundles(new, bundles[1]))


def exchange(bench: Bench, bundle: Bundle, position: int, new: Bundle, *, in_place: bool = False) -> Fenced:
    """Exchange a message that nobody holds; skip the test, with nothing changed, where the store cannot do it."""
    before = bench.stored()
    try:
        return bench.forward((Span(bundle.id, position, 1, PENDING),), new, in_place=in_place)
    except UnsupportedByStore:
        assert bench.stored() == before
        pytest.skip("the store exchanges no message that nobody holds here")
