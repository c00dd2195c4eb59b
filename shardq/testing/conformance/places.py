"""Contract: messages that are released unseen take their places in the order again."""

# ruff: noqa: D102 -- the name of a test is its sentence
from __future__ import annotations

import pytest

from shardq.testing.conformance.bench import Bench
from shardq.testing.conformance.contract import Contract
from shardq.testing.messages import of_bundle, of_bundles

__all__ = ["PlaceContract"]

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
