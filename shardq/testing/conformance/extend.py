"""Contract: an extension hides held messages for a new lease, counted from now."""

# ruff: noqa: D102 -- the name of a test is its sentence
from __future__ import annotations

from shardq.storage.requests import Fenced
from shardq.testing.conformance.bench import Bench
from shardq.testing.conformance.contract import Contract, exact_time
from shardq.testing.messages import of_bundle

__all__ = ["ExtendContract"]


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
