"""Contracts: processed messages can be kept, read, and swept.

The moment at which a bundle expires is kept with it, and shown without its bodies.
"""

# ruff: noqa: D102 -- the name of a test is its sentence

from __future__ import annotations

from typing import Any

import pytest

from shardq.storage.requests import Bundle, EntryState, Fenced, Finish, Peek
from shardq.testing.conformance.bench import Bench
from shardq.testing.conformance.contract import Contract, exact_time
from shardq.testing.messages import of_bundle, of_bundles, of_slices

__all__ = ["ExpiryContract", "HistoryContract"]


class HistoryContract(Contract):
    """The history of a queue."""

    def test_a_kept_message_is_processed_and_not_delivered_again(self, bench: Bench) -> None:
        bundle = bench.given(3)
        taken = bench.claim(lease=5)
        assert bench.ack(*taken.spans, keep=True) == Fenced()
        assert bench.stored() == []
        assert bench.history() == of_bundle(bundle)
        assert bench.other.count(bench.shard).processed == 3
        bench.advance(60)
        assert bench.claim(by=bench.other).messages == []

    def test_the_history_shows_bodies_deliveries_and_state(self, bench: Bench) -> None:
        bundle = bench.given(2, priority=3)
        bench.ack(*bench.claim().spans, keep=True)
        (shown,) = bench.peek(processed=True)
        assert (shown.bundle, shown.first, shown.count) == (bundle, 0, 2)
        assert (shown.deliveries, shown.state) == (1, EntryState.PROCESSED)

    def test_the_history_and_what_waits_are_shown_apart(self, bench: Bench) -> None:
        bundle = bench.given(4)
        bench.ack(*bench.claim(1).spans, keep=True)
        assert of_slices(bench.peek(processed=True)) == of_bundle(bundle, 0, 1)
        assert of_slices(bench.peek()) == of_bundle(bundle, 1)

    def test_the_history_is_in_the_order_of_processing(self, bench: Bench) -> None:
        bundles = [bench.given(1) for _ in range(4)]
        taken = bench.claim()
        for i in (2, 0, 3, 1):
            bench.advance(1)
            bench.ack(taken.spans[i], keep=True)
        expected = of_bundles(*(bundles[i] for i in (2, 0, 3, 1)))
        assert of_slices(bench.peek(processed=True)) == expected
        assert of_slices(bench.peek(1, processed=True)) == expected

    @exact_time
    def test_the_history_is_shown_from_since_until_before_until(self, bench: Bench) -> None:
        moments = []
        for _ in range(3):
            bench.given(1)
            bench.advance(10)
            moments.append(bench.store.now())
            bench.ack(*bench.claim().spans, keep=True)
        shown = bench.other.peek(Peek(bench.shard, 100, processed=True, since=moments[1], until=moments[2]))
        assert [each.due for each in shown.slices] == [moments[1]]
        shown = bench.other.peek(Peek(bench.shard, 100, processed=True, since=moments[1]))
        assert [each.due for each in shown.slices] == moments[1:]
        shown = bench.other.peek(Peek(bench.shard, 100, processed=True, until=moments[1]))
        assert [each.due for each in shown.slices] == moments[:1]

    def test_parts_of_a_bundle_are_kept_one_by_one(self, bench: Bench) -> None:
        bundle = bench.given(5)
        taken = bench.claim()
        bench.ack(taken.span(1, 1), keep=True)
        bench.ack(taken.span(2, 1))
        bench.ack(taken.span(3, 2), keep=True)
        assert bench.history() == [*of_bundle(bundle, 1, 1), *of_bundle(bundle, 3, 2)]
        assert bench.held() == of_bundle(bundle, 0, 1)
        assert sorted(of_slices(bench.peek(processed=True))) == bench.history()

    def test_a_repeated_keeping_ack_does_not_double_the_history(self, bench: Bench) -> None:
        bundle = bench.given(2)
        taken = bench.claim()
        bench.ack(*taken.spans, keep=True)
        bench.ack(*taken.spans, keep=True, by=bench.other)
        assert bench.history() == of_bundle(bundle)

    def test_the_bundle_stays_as_long_as_the_history_needs_it(self, bench: Bench) -> None:
        bench.given(2)
        taken = bench.claim()
        bench.ack(taken.span(0, 1), keep=True)
        bench.ack(taken.span(1, 1))
        assert bench.harness.raw_bundles(bench.shard) > 0
        assert len(bench.peek(processed=True)) == 1

    def test_a_sweep_gives_up_what_was_processed_before_a_moment(self, bench: Bench) -> None:
        bench.given(2)
        bench.ack(*bench.claim().spans, keep=True)
        bench.advance(20)
        between = bench.store.now()
        bench.advance(20)
        young = bench.given(2)
        bench.ack(*bench.claim().spans, keep=True)
        assert bench.sweep(history_before=between) > 0
        assert bench.history() == of_bundle(young)
        assert of_slices(bench.peek(processed=True)) == of_bundle(young)

    def test_a_sweep_of_the_last_processed_message_frees_the_bundle(self, bench: Bench) -> None:
        bench.given(3)
        bench.ack(*bench.claim().spans, keep=True)
        bench.advance(10)
        bench.sweep(history_before=bench.store.now())
        assert bench.history() == []
        assert bench.leftovers() == {}

    def test_a_sweep_keeps_the_bundle_of_messages_that_still_wait(self, bench: Bench) -> None:
        bundle = bench.given(4)
        bench.ack(*bench.claim(2).spans, keep=True)
        bench.advance(10)
        bench.sweep(history_before=bench.store.now())
        assert bench.history() == []
        taken = bench.claim()
        assert taken.messages == of_bundle(bundle, 2)
        assert taken.slices[0].bundle == bundle
        bench.ack(*taken.spans)
        assert bench.leftovers() == {}

    def test_an_ack_of_the_last_message_keeps_the_bundle_of_the_history(self, bench: Bench) -> None:
        bundle = bench.given(2)
        taken = bench.claim()
        bench.ack(taken.span(0, 1), keep=True)
        bench.ack(taken.span(1, 1))
        bench.advance(10)
        assert bench.peek(processed=True)[0].bundle == bundle
        bench.sweep(history_before=bench.store.now())
        assert bench.leftovers() == {}

    def test_a_sweep_leaves_what_waits_whatever_its_age(self, bench: Bench) -> None:
        bundles = [bench.given(2), bench.given(2), bench.given(2, priority=1, delay=100_000)]
        bench.claim(2)
        bench.advance(60)
        bench.sweep(history_before=bench.store.now() + bench.duration(10_000_000))
        assert bench.stored() == of_bundles(*bundles)

    def test_a_sweep_of_one_queue_leaves_the_history_of_others(self, bench: Bench) -> None:
        other = bench.shard_of(bench.new_queue(bench.queue + "1"))
        bundle = bench.given(2, shard=other)
        bench.ack(*bench.claim(shard=other).spans, keep=True, shard=other)
        bench.advance(10)
        bench.sweep(history_before=bench.store.now())
        assert bench.history(other) == of_bundle(bundle)

    def test_a_sweep_is_bounded_and_ends(self, bench: Bench) -> None:
        bench.append(*[bench.bundle() for _ in range(300)])
        bench.ack(*bench.claim().spans, keep=True)
        bench.advance(10)
        bench.sweep(history_before=bench.store.now())
        assert bench.leftovers() == {}


KINDS: dict[str, dict[str, Any]] = {
    "one small message": {},
    "several messages": {"count": 4},
    "a large message": {"data": bytes(20_000)},
    "a delayed message": {"delay": 20},
}


def given(bench: Bench, kind: str) -> Bundle:
    """Store a bundle that expires 20 seconds after it is due, and wait until it is due."""
    bundle = bench.bundle(**{"ttl": 20, **KINDS[kind]})
    bench.append(bundle)
    bench.advance(30 if kind == "a delayed message" else 0)
    return bundle


each_kind = pytest.mark.parametrize("kind", KINDS)


class ExpiryContract(Contract):
    """A store keeps the moment and does not act on it."""

    @each_kind
    def test_a_claim_answers_when_the_bundle_expires(self, bench: Bench, kind: str) -> None:
        bundle = given(bench, kind)
        taken = bench.claim(by=bench.other)
        assert [each.bundle for each in taken.slices] == [bundle]
        again = bench.claim(token=taken.token, by=bench.other)
        assert [each.bundle.expires_at for each in again.slices] == [bundle.expires_at]

    @each_kind
    def test_looks_show_when_the_bundle_expires_with_and_without_bodies(
        self, bench: Bench, kind: str
    ) -> None:
        bundle = given(bench, kind)
        for bodies in (False, True):
            assert self._shown(bench, bodies=bodies) == {(bundle.expires_at, EntryState.READY)}
        found = bench.other.find(bench.shard, bundle.id, bundle.count - 1)
        assert found is not None
        assert found.bundle == bundle

    @each_kind
    def test_it_stays_whatever_becomes_of_the_messages(self, bench: Bench, kind: str) -> None:
        bundle = given(bench, kind)
        taken = bench.claim(1, lease=5)
        bench.advance(10)  # the lease expires
        again = bench.claim(1, by=bench.other)
        assert [each.bundle for each in again.slices] == [bundle]
        bench.extend(*again.spans)
        bench.release(*again.spans, delay=5)
        for bodies in (False, True):
            assert {moment for moment, _ in self._shown(bench, bodies=bodies)} == {bundle.expires_at}
        bench.advance(10)
        rest = bench.claim(started=False)
        assert {each.bundle.expires_at for each in rest.slices} == {bundle.expires_at}
        bench.release(*rest.spans, started=False)
        assert taken.messages == of_bundle(bundle, 0, 1)
        assert {moment for moment, _ in self._shown(bench)} == {bundle.expires_at}

    @each_kind
    def test_the_history_has_it_too(self, bench: Bench, kind: str) -> None:
        bundle = given(bench, kind)
        taken = bench.claim()
        bench.ack(*taken.spans, keep=True)
        for bodies in (False, True):
            (kept,) = bench.peek(processed=True, bodies=bodies)
            assert kept.bundle.expires_at == bundle.expires_at

    @each_kind
    def test_what_is_appended_by_a_forward_has_it(self, bench: Bench, kind: str) -> None:
        bench.given()
        taken = bench.claim()
        bundle = bench.bundle(**{"ttl": 100, **KINDS[kind]})
        assert bench.forward(taken.spans, bundle) == Fenced()
        assert {moment for moment, _ in self._shown(bench, bodies=False)} == {bundle.expires_at}

    @each_kind
    def test_a_repeated_append_leaves_it_as_it_was(self, bench: Bench, kind: str) -> None:
        bundle = given(bench, kind)
        bench.append(bundle, by=bench.other)
        assert self._shown(bench) == {(bundle.expires_at, EntryState.READY)}

    @each_kind
    def test_what_has_expired_is_still_claimed_and_acked(self, bench: Bench, kind: str) -> None:
        bundle = given(bench, kind)
        bench.advance(45)
        taken = bench.claim()
        assert taken.messages == of_bundle(bundle)
        assert bench.ack(*taken.spans) == Fenced()

    @each_kind
    def test_a_claim_only_holds_what_has_expired_by_the_moment_that_it_says(
        self, bench: Bench, kind: str
    ) -> None:
        bundle = given(bench, kind)
        assert bundle.expires_at is not None
        taken = bench.claim(finish=Finish(now=bundle.expires_at))
        assert of_slices([each for each in taken.slices if not each.finished]) == of_bundle(bundle)
        assert bench.held() == of_bundle(bundle)

    @each_kind
    def test_a_claim_may_finish_what_expires_later(self, bench: Bench, kind: str) -> None:
        bundle = given(bench, kind)
        assert bundle.expires_at is not None
        taken = bench.claim(finish=Finish(now=bundle.expires_at - 1))
        assert taken.messages == of_bundle(bundle)
        assert [each.bundle for each in taken.slices] == [bundle]

    @each_kind
    def test_what_does_not_expire_has_no_such_moment(self, bench: Bench, kind: str) -> None:
        bench.append(bench.bundle(**KINDS[kind]))
        assert {moment for moment, _ in self._shown(bench, bodies=False)} == {None}

    def _shown(self, bench: Bench, *, bodies: bool = True) -> set[tuple[int | None, EntryState]]:
        return {(each.bundle.expires_at, each.state) for each in bench.peek(bodies=bodies)}
