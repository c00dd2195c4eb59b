"""Contracts: a release gives messages back.

Messages that are released unseen take their places in the order again.
"""

# ruff: noqa: D102 -- the name of a test is its sentence

from __future__ import annotations

import pytest

from shardq.storage.requests import EntryState, Fenced
from shardq.testing.conformance.bench import Bench
from shardq.testing.conformance.contract import Contract, exact_time
from shardq.testing.messages import of_bundle, of_bundles, of_spans

__all__ = ["PlaceContract", "ReleaseContract"]


class ReleaseContract(Contract):
    """Releasing claims and parts of them."""

    def test_a_released_message_is_claimed_by_another_at_once(self, bench: Bench) -> None:
        bundle = bench.given(3)
        taken = bench.claim()
        assert bench.release(*taken.spans) == Fenced()
        assert bench.waiting() == of_bundle(bundle)
        assert bench.claim(by=bench.other).messages == of_bundle(bundle)

    def test_a_release_with_a_delay_hides_for_so_long(self, bench: Bench) -> None:
        bundle = bench.given(3)
        bench.release(*bench.claim(lease=5).spans, delay=60)
        bench.advance(30)
        assert bench.claim(by=bench.other).messages == []
        bench.advance(40)
        assert bench.claim(by=bench.other).messages == of_bundle(bundle)

    @exact_time
    def test_a_delay_ends_exactly_at_its_end(self, bench: Bench) -> None:
        bundle = bench.given(1)
        bench.release(*bench.claim().spans, delay=45)
        (slice_,) = bench.peek()
        assert (slice_.state, slice_.due) == (EntryState.DELAYED, bench.store.now() + 45_000_000)
        bench.advance(44.999999)
        assert bench.claim(by=bench.other).messages == []
        bench.advance(0.000001)
        assert bench.claim(by=bench.other).messages == of_bundle(bundle)

    def test_a_release_counts_the_delivery(self, bench: Bench) -> None:
        bench.given(2)
        for delivery in (1, 2, 3):
            taken = bench.claim()
            assert taken.deliveries == {delivery}
            bench.release(*taken.spans)

    def test_a_release_of_what_nobody_started_does_not_count_it(self, bench: Bench) -> None:
        bench.given(2)
        for _ in range(3):
            taken = bench.claim()
            assert taken.deliveries == {1}
            bench.release(*taken.spans, started=False)
        assert bench.peek()[0].deliveries == 0

    def test_deliveries_are_right_across_both_ways_of_release(self, bench: Bench) -> None:
        bench.given(2)
        seen: list[int] = []
        for started in (True, False, False, True, False, True):
            taken = bench.claim()
            seen += taken.deliveries
            bench.release(*taken.spans, started=started)
        assert seen == [1, 2, 2, 2, 3, 3]

    def test_a_release_that_does_not_count_can_have_a_delay(self, bench: Bench) -> None:
        bundle = bench.given(3)
        bench.release(*bench.claim(lease=5).spans, delay=60, started=False)
        (slice_,) = bench.peek()
        assert (slice_.state, slice_.deliveries) == (EntryState.DELAYED, 0)
        bench.advance(30)
        assert bench.claim(by=bench.other).messages == []
        bench.advance(40)
        taken = bench.claim(by=bench.other)
        assert (taken.messages, taken.deliveries) == (of_bundle(bundle), {1})

    def test_deliveries_before_one_that_is_put_off_still_count(self, bench: Bench) -> None:
        bench.given(2)
        seen: list[int] = []
        for started in (True, False, False, True, False, True):
            taken = bench.claim()
            seen += taken.deliveries
            bench.release(*taken.spans, delay=10, started=started)
            bench.advance(20)
        assert seen == [1, 2, 2, 2, 3, 3]

    def test_a_delivery_that_an_extension_counted_is_taken_back_when_it_is_put_off(
        self, bench: Bench
    ) -> None:
        bench.given(2)
        taken = bench.claim(started=False)
        bench.extend(*taken.spans, starts=True)
        bench.release(*taken.spans, delay=10, started=False)
        bench.advance(20)
        assert bench.claim().deliveries == {1}

    def test_putting_off_under_a_token_that_lost_its_hold_takes_no_delivery_back(self, bench: Bench) -> None:
        bundle = bench.given(2)
        stale = bench.claim(lease=5)
        bench.advance(10)
        bench.claim(lease=5, by=bench.other)
        fenced = bench.release(*stale.spans, delay=10, started=False)
        assert sorted(of_spans(fenced.lost)) == of_bundle(bundle)
        bench.advance(20)
        assert bench.claim().deliveries == {3}

    def test_a_part_is_released_and_the_rest_stays_held(self, bench: Bench) -> None:
        bundle = bench.given(6)
        taken = bench.claim()
        assert bench.release(taken.span(1, 2), taken.span(4, 1)) == Fenced()
        assert bench.held() == [*of_bundle(bundle, 0, 1), *of_bundle(bundle, 3, 1), *of_bundle(bundle, 5)]
        again = bench.claim(by=bench.other)
        assert sorted(again.messages) == [*of_bundle(bundle, 1, 2), *of_bundle(bundle, 4, 1)]
        assert again.deliveries == {2}

    def test_a_part_released_as_not_started_keeps_its_own_count(self, bench: Bench) -> None:
        bundle = bench.given(4)
        taken = bench.claim(lease=5)
        bench.release(taken.span(2, 2), started=False)
        bench.advance(10)
        again = bench.claim()
        assert sorted(again.messages) == of_bundle(bundle)
        assert {each.first: each.deliveries for each in again.slices} == {0: 2, 2: 1}

    def test_pieces_released_one_by_one_can_all_be_finished(self, bench: Bench) -> None:
        bundle = bench.given(5)
        taken = bench.claim()
        for i in (4, 0, 2, 1, 3):
            bench.release(taken.span(i, 1))
        again = bench.claim()
        assert sorted(again.messages) == of_bundle(bundle)
        assert bench.ack(*again.spans) == Fenced()
        assert bench.leftovers() == {}

    def test_a_repeated_release_changes_nothing(self, bench: Bench) -> None:
        bundle = bench.given(2)
        taken = bench.claim()
        bench.release(*taken.spans, started=False)
        fenced = bench.release(*taken.spans, delay=900, started=False, by=bench.other)
        assert sorted(of_spans(fenced.lost)) == of_bundle(bundle)
        again = bench.claim()
        assert again.messages == of_bundle(bundle)
        assert again.deliveries == {1}

    def test_a_repeated_release_does_not_take_it_from_the_next_holder(self, bench: Bench) -> None:
        bundle = bench.given(2)
        taken = bench.claim()
        bench.release(*taken.spans)
        following = bench.claim(by=bench.other)
        fenced = bench.release(*taken.spans)
        assert sorted(of_spans(fenced.lost)) == of_bundle(bundle)
        assert bench.held() == of_bundle(bundle)
        assert bench.ack(*following.spans) == Fenced()

    def test_the_bundle_itself_does_not_change(self, bench: Bench) -> None:
        bundle = bench.given(2, priority=3)
        bench.release(*bench.claim().spans, delay=10)
        bench.advance(20)
        assert bench.claim().slices[0].bundle == bundle


how_claimed = pytest.mark.parametrize("started", [True, False])


class PlaceContract(Contract):
    """Releases of what was never delivered, and of what was."""

    @how_claimed
    def test_what_is_given_back_unseen_comes_before_what_was_sent_later(
        self, bench: Bench, started: bool
    ) -> None:
        first, second = bench.given(2), bench.given(2)
        taken = bench.claim(2, started=started)
        bench.advance(10)
        newer = bench.given()
        bench.release(*taken.spans, started=False)
        assert bench.claim(by=bench.other).messages == of_bundles(first, second, newer)

    @how_claimed
    def test_the_pieces_of_a_slice_take_their_places_again(self, bench: Bench, started: bool) -> None:
        first, second = bench.given(6), bench.given(1)
        taken = bench.claim(4, started=started)
        bench.advance(10)
        bench.release(taken.span(2, 2), started=False)
        assert bench.claim(3).messages == [*of_bundle(first, 2), *of_bundle(second)][:3]
        bench.release(taken.span(1, 1), started=False)
        bench.release(taken.span(0, 1), started=False, by=bench.other)
        assert bench.claim().messages == [*of_bundle(first, 0, 2), *of_bundle(first, 5), *of_bundle(second)]

    def test_priorities_and_due_times_decide_as_if_it_had_never_been_claimed(self, bench: Bench) -> None:
        late, high, low = bench.given(delay=20), bench.given(priority=0), bench.given(priority=4)
        bench.advance(25)
        taken = bench.claim(started=False)
        assert taken.messages == of_bundles(high, late, low)
        bench.advance(10)
        now = bench.given(priority=0)
        bench.release(*reversed(taken.spans), started=False)
        assert bench.claim().messages == of_bundles(high, late, now, low)

    def test_a_lease_that_ran_out_unstarted_does_not_cost_the_place(self, bench: Bench) -> None:
        first = bench.given()
        bench.claim(started=False, lease=5)
        bench.advance(10)
        taken = bench.claim(started=False)
        second = bench.given()
        bench.release(*taken.spans, started=False)
        assert bench.claim().messages == of_bundles(first, second)

    def test_what_was_delivered_before_is_due_when_it_is_given_back(self, bench: Bench) -> None:
        first = bench.given()
        bench.release(*bench.claim().spans)
        taken = bench.claim(started=False)
        bench.advance(10)
        second = bench.given()
        bench.advance(10)
        bench.release(*taken.spans, started=False)
        assert bench.claim().messages == of_bundles(second, first)

    def test_with_a_delay_it_is_due_after_that(self, bench: Bench) -> None:
        first = bench.given()
        taken = bench.claim(started=False)
        second = bench.given()
        bench.release(*taken.spans, started=False, delay=10)
        assert bench.claim(lease=300).messages == of_bundle(second)
        bench.advance(20)
        assert bench.claim().messages == of_bundle(first)

    def test_the_probe_tells_its_own_due_time_again(self, bench: Bench) -> None:
        bundle = bench.given(2, priority=3)
        taken = bench.claim(started=False)
        bench.advance(10)
        bench.release(*taken.spans, started=False)
        assert (bench.probe().priority, bench.probe().due) == (3, bundle.due)
