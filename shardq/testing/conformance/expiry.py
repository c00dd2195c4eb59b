"""Contract: the moment at which a bundle expires is kept with it, and shown without its bodies."""

# ruff: noqa: D102 -- the name of a test is its sentence
from __future__ import annotations

from typing import Any

import pytest

from shardq.storage.requests import Bundle, EntryState, Fenced, Finish
from shardq.testing.conformance.bench import Bench
from shardq.testing.conformance.contract import Contract
from shardq.testing.messages import of_bundle, of_slices

__all__ = ["ExpiryContract"]

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
