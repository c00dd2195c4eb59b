"""Contract: messages come in the order of priority, due time and sending, and never early."""

# ruff: noqa: D102 -- the name of a test is its sentence
from __future__ import annotations

from shardq.testing.conformance.bench import Bench
from shardq.testing.conformance.contract import Contract, exact_time
from shardq.testing.messages import of_bundle, of_bundles

__all__ = ["OrderContract"]


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
