"""Contracts: an extension hides held messages for a new lease, counted from now.

A delivery counts when the work on it starts, where a claim says so.
"""

# ruff: noqa: D102 -- the name of a test is its sentence

from __future__ import annotations

from shardq.storage.requests import Fenced
from shardq.testing.conformance.bench import Bench
from shardq.testing.conformance.contract import Contract, exact_time
from shardq.testing.messages import of_bundle

__all__ = ["ExtendContract", "StartContract"]


class ExtendContract(Contract):
    """Extending leases."""

    def test_an_extended_message_stays_hidden(self, bench: Bench) -> None:
        bench.given(3)
        taken = bench.claim(lease=20)
        bench.advance(10)
        assert bench.extend(*taken.spans, lease=60) == Fenced()
        bench.advance(30)
        assert bench.claim(by=bench.other).messages == []
        assert bench.ack(*taken.spans) == Fenced()

    def test_the_new_lease_counts_from_now(self, bench: Bench) -> None:
        bundle = bench.given(3)
        taken = bench.claim(lease=20)
        bench.advance(10)
        bench.extend(*taken.spans, lease=20)
        bench.advance(15)
        assert bench.claim(by=bench.other).messages == []
        bench.advance(10)
        assert bench.claim(by=bench.other).messages == of_bundle(bundle)

    @exact_time
    def test_the_new_lease_ends_exactly_at_its_end(self, bench: Bench) -> None:
        bundle = bench.given(3)
        taken = bench.claim(lease=20)
        bench.advance(7)
        bench.extend(*taken.spans, lease=30)
        bench.advance(29.999999)
        assert bench.claim(by=bench.other).messages == []
        bench.advance(0.000001)
        assert bench.claim(by=bench.other).messages == of_bundle(bundle)

    def test_a_lease_can_be_shortened(self, bench: Bench) -> None:
        bundle = bench.given(3)
        taken = bench.claim(lease=3600)
        bench.extend(*taken.spans, lease=5)
        bench.advance(10)
        assert bench.claim(by=bench.other).messages == of_bundle(bundle)

    def test_a_lease_that_may_not_be_shortened_stays(self, bench: Bench) -> None:
        bundle = bench.given(6)
        taken = bench.claim(lease=20)
        bench.extend(taken.span(0, 3), lease=600)
        assert bench.extend(taken.span(0, 4), lease=100, shorten=False) == Fenced()
        assert bench.extend(taken.span(5, 1), lease=100, shorten=False) == Fenced()
        bench.advance(40)
        assert bench.claim(lease=30, by=bench.other).messages == of_bundle(bundle, 4, 1)
        bench.advance(100)
        again = bench.claim(by=bench.other)
        assert sorted(again.messages) == [*of_bundle(bundle, 3, 2), *of_bundle(bundle, 5)]
        assert bench.ack(taken.span(0, 3)) == Fenced()

    def test_an_extension_is_no_delivery(self, bench: Bench) -> None:
        bench.given(2)
        taken = bench.claim(lease=5)
        bench.extend(*taken.spans, lease=5)
        bench.extend(*taken.spans, lease=5)
        bench.advance(10)
        assert bench.claim().deliveries == {2}

    def test_a_part_is_extended_and_the_rest_comes_back(self, bench: Bench) -> None:
        bundle = bench.given(5)
        taken = bench.claim(lease=10)
        bench.extend(taken.span(1, 2), lease=300)
        bench.advance(20)
        again = bench.claim(by=bench.other)
        assert sorted(again.messages) == [*of_bundle(bundle, 0, 1), *of_bundle(bundle, 3)]
        assert bench.ack(taken.span(1, 2)) == Fenced()

    def test_extending_piece_by_piece_keeps_every_message(self, bench: Bench) -> None:
        bundle = bench.given(6)
        taken = bench.claim(lease=10)
        for i in (3, 0, 5, 1, 4, 2):
            assert bench.extend(taken.span(i, 1), lease=100 + i) == Fenced()
        assert bench.held() == of_bundle(bundle)
        assert bench.extend(taken.span(0, 6), lease=50) == Fenced()
        bench.advance(30)
        assert bench.claim(by=bench.other).messages == []
        assert bench.ack(taken.span(0, 6)) == Fenced()
        assert bench.leftovers() == {}

    def test_a_repeated_extension_is_harmless(self, bench: Bench) -> None:
        bundle = bench.given(2)
        taken = bench.claim()
        assert bench.extend(*taken.spans) == Fenced()
        assert bench.extend(*taken.spans, by=bench.other) == Fenced()
        assert bench.held() == of_bundle(bundle)

    def test_an_extension_leaves_other_claims_alone(self, bench: Bench) -> None:
        bundle = bench.given(4)
        first = bench.claim(2, lease=10)
        bench.claim(lease=10, by=bench.other)
        bench.extend(*first.spans, lease=300)
        bench.advance(20)
        assert bench.claim().messages == of_bundle(bundle, 2)


class StartContract(Contract):
    """Claims of what is not worked on yet, and extensions that start the work."""

    def test_a_delivery_counts_from_its_start_and_the_claim_tells_it_before(self, bench: Bench) -> None:
        bench.given(3)
        taken = bench.claim(started=False)
        assert taken.deliveries == {1}
        assert _counted(bench) == {0}
        assert bench.extend(*taken.spans, starts=True) == Fenced()
        assert _counted(bench) == {1}

    def test_a_start_counts_once_however_often_it_is_repeated(self, bench: Bench) -> None:
        bench.given(2)
        taken = bench.claim(started=False, lease=5)
        for client in (bench.store, bench.other, bench.store):
            assert bench.extend(*taken.spans, lease=5, starts=True, by=client) == Fenced()
        assert _counted(bench) == {1}
        bench.advance(10)
        assert bench.claim(by=bench.other).deliveries == {2}

    def test_a_start_of_what_was_counted_by_its_claim_counts_nothing(self, bench: Bench) -> None:
        bench.given(2)
        taken = bench.claim()
        bench.extend(*taken.spans, starts=True)
        assert _counted(bench) == {1}

    def test_an_extension_that_starts_nothing_counts_nothing(self, bench: Bench) -> None:
        bench.given(2)
        taken = bench.claim(started=False)
        bench.extend(*taken.spans, lease=5)
        assert _counted(bench) == {0}
        bench.advance(10)
        assert bench.claim().deliveries == {1}

    def test_a_lapsed_lease_of_what_nobody_started_comes_back_with_the_same_count(self, bench: Bench) -> None:
        bundle = bench.given(3)
        for _ in range(3):
            taken = bench.claim(started=False, lease=5, by=bench.other)
            assert taken.messages == of_bundle(bundle)
            assert taken.deliveries == {1}
            bench.advance(10)
        assert bench.claim().deliveries == {1}

    def test_deliveries_before_it_are_counted_on(self, bench: Bench) -> None:
        bench.given(2)
        bench.claim(lease=5)
        bench.advance(10)
        taken = bench.claim(started=False, lease=5)
        assert taken.deliveries == {2}
        bench.extend(*taken.spans, lease=5, starts=True)
        bench.advance(10)
        assert bench.claim(started=False).deliveries == {3}
        assert _counted(bench) == {2}

    def test_a_part_is_started_and_the_rest_is_not(self, bench: Bench) -> None:
        bundle = bench.given(5)
        taken = bench.claim(started=False, lease=5)
        assert bench.extend(taken.span(1, 2), lease=5, starts=True) == Fenced()
        bench.advance(10)
        again = bench.claim()
        counts = {each.first + i: each.deliveries for each in again.slices for i in range(each.count)}
        assert counts == {0: 1, 1: 2, 2: 2, 3: 1, 4: 1}
        assert sorted(again.messages) == of_bundle(bundle)

    def test_a_start_under_a_token_that_lost_its_hold_counts_nothing(self, bench: Bench) -> None:
        bench.given(2)
        stale = bench.claim(started=False, lease=5)
        bench.advance(10)
        fresh = bench.claim(started=False, by=bench.other)
        assert sum(span.count for span in bench.extend(*stale.spans, starts=True).lost) == 2
        assert _counted(bench) == {0}
        assert bench.ack(*fresh.spans) == Fenced()

    def test_a_repeated_claim_of_what_nobody_started_counts_nothing(self, bench: Bench) -> None:
        bench.given(3)
        first = bench.claim(2, started=False)
        again = bench.claim(2, started=False, token=first.token, by=bench.other)
        assert again.slices == first.slices
        assert _counted(bench) == {0}

    def test_a_repeated_claim_takes_no_start_back(self, bench: Bench) -> None:
        bench.given(2)
        taken = bench.claim(started=False, lease=5)
        bench.extend(*taken.spans, starts=True)
        assert bench.claim(started=False, token=taken.token, lease=5).deliveries == {1}
        assert _counted(bench) == {1}
        bench.advance(10)
        assert bench.claim().deliveries == {2}

    def test_what_nobody_started_can_be_finished(self, bench: Bench) -> None:
        bundle = bench.given(4)
        taken = bench.claim(started=False)
        assert bench.ack(taken.span(0, 2)) == Fenced()
        assert bench.ack(taken.span(2, 1), keep=True) == Fenced()
        assert bench.history() == of_bundle(bundle, 2, 1)
        assert bench.forward((taken.span(3, 1),), new := bench.bundle()) == Fenced()
        assert bench.stored() == of_bundle(new)

    def test_giving_back_what_nobody_started_does_not_count_it(self, bench: Bench) -> None:
        bench.given(2)
        bench.release(*bench.claim().spans)
        for _ in range(3):
            taken = bench.claim(started=False)
            assert taken.deliveries == {2}
            assert bench.release(*taken.spans, started=False) == Fenced()
            assert _counted(bench) == {1}

    def test_giving_back_what_was_started_later_takes_its_count_back(self, bench: Bench) -> None:
        bench.given(2)
        taken = bench.claim(started=False)
        bench.extend(*taken.spans, starts=True)
        bench.release(*taken.spans, started=False)
        assert _counted(bench) == {0}
        assert bench.claim().deliveries == {1}

    def test_a_release_that_says_that_it_was_started_counts_it(self, bench: Bench) -> None:
        bench.given(2)
        taken = bench.claim(started=False)
        bench.release(*taken.spans)
        assert _counted(bench) == {1}
        assert bench.claim().deliveries == {2}


def _counted(bench: Bench) -> set[int]:
    return {each.deliveries for each in bench.peek()}
