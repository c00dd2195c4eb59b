"""Contracts: a claim hands out due messages, to one client.

They come in the order of priority, due time and sending, and never early.
"""

# ruff: noqa: D102 -- the name of a test is its sentence

from __future__ import annotations

import msgspec
import pytest

from shardq.testing.conformance.bench import Bench
from shardq.testing.conformance.contract import Contract, exact_time
from shardq.testing.messages import of_bundle, of_bundles

__all__ = ["ClaimContract", "OrderContract"]


class ClaimContract(Contract):
    """Claiming, hiding, splitting."""

    def test_an_answer_is_made_of_plain_values(self, bench: Bench) -> None:
        bench.given(2)
        claimed = bench.claim(1).claimed
        (seen,) = bench.peek()[:1]
        assert msgspec.msgpack.encode(
            (claimed.slices, claimed.lease_until, seen.bundle, bench.probe().next_due)
        )

    def test_an_empty_shard_yields_nothing(self, bench: Bench) -> None:
        assert bench.claim().messages == []
        assert bench.claim(shard=bench.shard_of(bench.queue, 3, 3)).messages == []

    def test_claimed_messages_are_held_and_hidden_from_others(self, bench: Bench) -> None:
        bundle = bench.given(3)
        assert bench.claim().messages == of_bundle(bundle)
        assert bench.held() == of_bundle(bundle)
        assert bench.waiting() == []
        assert bench.claim(by=bench.other).messages == []
        assert bench.claim().messages == []

    def test_a_claim_takes_no_more_than_its_limit(self, bench: Bench) -> None:
        bundles = [bench.given(1) for _ in range(5)]
        assert bench.claim(2).messages == of_bundles(*bundles[:2])
        assert bench.held() == of_bundles(*bundles[:2])
        assert bench.claim(2).messages == of_bundles(*bundles[2:4])

    def test_a_slice_above_the_limit_is_split_and_the_rest_stays_as_it_was(self, bench: Bench) -> None:
        bundle = bench.given(5)
        taken = bench.claim(2)
        assert taken.messages == of_bundle(bundle, 0, 2)
        assert bench.waiting() == of_bundle(bundle, 2)
        (rest,) = [each for each in bench.peek() if each.first >= 2]
        assert (rest.first, rest.count, rest.deliveries, rest.due) == (2, 3, 0, bundle.due)
        assert bench.claim().deliveries == {1}

    def test_a_slice_is_split_again_and_again(self, bench: Bench) -> None:
        bundle = bench.given(7)
        clients = [bench.store, bench.other]
        taken = [bench.claim(2, by=clients[i % 2]).messages for i in range(5)]
        assert [len(each) for each in taken] == [2, 2, 2, 1, 0]
        assert [message for each in taken for message in each] == of_bundle(bundle)

    def test_a_claim_spans_bundles_and_splits_the_last(self, bench: Bench) -> None:
        first, second, third = bench.given(2), bench.given(3), bench.given(4)
        taken = bench.claim(7)
        assert taken.messages == [*of_bundles(first, second), *of_bundle(third, 0, 2)]
        assert bench.waiting() == of_bundle(third, 2)

    def test_every_slice_comes_with_its_whole_bundle(self, bench: Bench) -> None:
        bundle = bench.given(4)
        bench.claim(1)
        assert bench.claim(1, by=bench.other).slices[0].bundle == bundle

    def test_an_unacked_message_comes_back_after_its_lease(self, bench: Bench) -> None:
        bundle = bench.given(3)
        bench.claim(lease=30)
        bench.advance(10)
        assert bench.claim(by=bench.other).messages == []
        bench.advance(25)
        again = bench.claim(by=bench.other)
        assert again.messages == of_bundle(bundle)
        assert again.deliveries == {2}

    @exact_time
    def test_the_lease_ends_exactly_at_its_end(self, bench: Bench) -> None:
        bundle = bench.given(2)
        taken = bench.claim(lease=30)
        assert taken.claimed.lease_until == bench.store.now() + 30_000_000
        bench.advance(29.999999)
        assert bench.claim().messages == []
        bench.advance(0.000001)
        assert bench.claim().messages == of_bundle(bundle)

    @exact_time
    def test_every_client_has_the_same_clock(self, bench: Bench) -> None:
        assert bench.store.now() == bench.other.now()
        before = bench.store.now()
        bench.advance(2)
        assert bench.other.now() == before + 2_000_000

    def test_the_end_of_the_lease_is_told(self, bench: Bench) -> None:
        bench.given(1)
        before = bench.store.now()
        until = bench.claim(lease=30).claimed.lease_until
        after = bench.store.now()
        slack = 0 if not bench.harness.real_time else 50_000
        assert before - slack <= until - bench.duration(30) <= after + slack

    def test_each_delivery_is_counted(self, bench: Bench) -> None:
        bench.given(2)
        for delivery in range(1, 5):
            assert bench.claim(lease=5).deliveries == {delivery}
            bench.advance(10)

    def test_the_parts_of_a_bundle_count_their_deliveries_apart(self, bench: Bench) -> None:
        bundle = bench.given(4)
        bench.claim(2, lease=5)
        bench.advance(10)
        # Depending on the end of the lease, the first part is due after the rest: take everything
        taken = bench.claim()
        counted = {each.first: (each.count, each.deliveries) for each in taken.slices}
        assert counted == {0: (2, 2), 2: (2, 1)}
        assert sorted(taken.messages) == of_bundle(bundle)

    def test_a_lapsed_slice_is_split_by_a_smaller_claim(self, bench: Bench) -> None:
        bundle = bench.given(5)
        bench.claim(lease=5)
        bench.advance(10)
        second = bench.claim(2, by=bench.other)
        assert second.messages == of_bundle(bundle, 0, 2)
        third = bench.claim()
        assert third.messages == of_bundle(bundle, 2)
        assert second.deliveries == third.deliveries == {2}

    @exact_time
    @pytest.mark.parametrize("lease", [1, 3600, 30 * 24 * 3600])
    def test_a_lease_may_be_short_or_long(self, bench: Bench, lease: float) -> None:
        bench.given(1)
        bench.claim(lease=lease)
        bench.advance(lease - 0.5)
        assert bench.claim().messages == []
        bench.advance(0.5)
        assert len(bench.claim().messages) == 1

    def test_two_claims_of_one_client_have_separate_holds(self, bench: Bench) -> None:
        bench.given(4)
        first, second = bench.claim(2), bench.claim(2)
        bench.ack(*first.spans)
        assert bench.held() == sorted(second.messages)

    def test_a_claim_of_one_shard_leaves_the_others_alone(self, bench: Bench) -> None:
        other = bench.shard_of(bench.queue, 0, 1)
        bundle = bench.given(2, shard=other)
        bench.given(2)
        assert len(bench.claim().messages) == 2
        assert bench.waiting(other) == of_bundle(bundle)


class OrderContract(Contract):
    """Order and delay."""

    def test_the_lower_priority_number_comes_first(self, bench: Bench) -> None:
        bundles = {priority: bench.given(2, priority=priority) for priority in (5, 0, 9, 3, 1)}
        assert bench.claim().messages == of_bundles(*(bundles[priority] for priority in sorted(bundles)))

    def test_priority_comes_before_due_time(self, bench: Bench) -> None:
        low = bench.given(priority=5)
        bench.advance(10)
        high = bench.given(priority=4)
        assert bench.claim(by=bench.other).messages == of_bundles(high, low)

    def test_within_a_priority_the_due_time_decides(self, bench: Bench) -> None:
        late, soon, now = bench.given(delay=20), bench.given(delay=10), bench.given()
        bench.advance(30)
        assert bench.claim().messages == of_bundles(now, soon, late)

    def test_at_the_same_due_time_the_send_order_decides(self, bench: Bench) -> None:
        bundles = [bench.bundle(1 + i % 2) for i in range(20)]
        for bundle in reversed(bundles):
            bench.append(bundle)
        assert bench.claim(by=bench.other).messages == of_bundles(*bundles)

    def test_a_claim_with_a_limit_takes_the_first_in_order(self, bench: Bench) -> None:
        low, high, middle = bench.given(2, priority=7), bench.given(2, priority=1), bench.given(2, priority=3)
        assert bench.claim(3).messages == [*of_bundle(high), *of_bundle(middle, 0, 1)]
        assert bench.claim(2).messages == [*of_bundle(middle, 1), *of_bundle(low, 0, 1)]

    def test_the_rest_of_a_split_slice_keeps_its_place(self, bench: Bench) -> None:
        first, second = bench.given(3), bench.given(1)
        bench.claim(1)
        assert bench.claim().messages == [*of_bundle(first, 1), *of_bundle(second)]

    def test_a_message_is_not_delivered_before_it_is_due(self, bench: Bench) -> None:
        bundle = bench.given(2, delay=30)
        bench.advance(5)
        assert bench.claim().messages == []
        assert bench.claim(by=bench.other).messages == []
        bench.advance(30)
        assert bench.claim(by=bench.other).messages == of_bundle(bundle)

    @exact_time
    def test_a_message_is_delivered_exactly_when_it_is_due(self, bench: Bench) -> None:
        bundle = bench.given(2, delay=30)
        bench.advance(29.999999)
        assert bench.claim().messages == []
        bench.advance(0.000001)
        assert bench.claim().messages == of_bundle(bundle)

    def test_a_delayed_message_of_high_priority_does_not_hold_up_the_others(self, bench: Bench) -> None:
        bench.given(3, priority=0, delay=60)
        bench.given(1, priority=4, delay=60)
        bundle = bench.given(2, priority=9)
        assert bench.claim(1).messages == of_bundle(bundle, 0, 1)
        assert bench.claim().messages == of_bundle(bundle, 1)

    def test_many_held_messages_do_not_hold_up_the_others(self, bench: Bench) -> None:
        bench.append(*[bench.bundle() for _ in range(200)])
        bench.claim(200)
        bundle = bench.given(priority=9)
        assert bench.claim(1).messages == of_bundle(bundle)

    def test_a_due_time_in_the_past_counts_as_given(self, bench: Bench) -> None:
        bench.advance(20)
        now = bench.given()
        past = bench.given(delay=-10)
        assert bench.claim().messages == of_bundles(past, now)

    def test_a_redelivery_keeps_its_priority(self, bench: Bench) -> None:
        high, low = bench.given(priority=1), bench.given(priority=2)
        bench.claim(1, lease=5)
        bench.advance(10)
        assert bench.claim(1).messages == of_bundle(high)
        assert bench.claim(1).messages == of_bundle(low)

    def test_a_released_message_is_due_when_its_release_says(self, bench: Bench) -> None:
        released = bench.given()
        taken = bench.claim()
        waiting = bench.given(delay=5)
        bench.release(*taken.spans, delay=10)
        bench.advance(20)
        assert bench.claim().messages == of_bundles(waiting, released)
