"""Contract: a claim may finish the messages that it takes, and reports which."""

# ruff: noqa: D102 -- the name of a test is its sentence
from __future__ import annotations

import msgspec
import pytest

from shardq.storage.bundles import BundleData, encode_bundle
from shardq.storage.requests import Bundle, EntryState, Fenced, Finish
from shardq.testing.conformance.bench import Bench
from shardq.testing.conformance.contract import Contract
from shardq.testing.messages import Message, Taken, of_bundle, of_slices, of_spans

__all__ = ["FinishContract"]

KEYED = {
    "dedupe keys": BundleData([b"x"], None, ["key"]),
    "a move key": BundleData([b"x"], None, None, "key"),
}


class FinishContract(Contract):
    """Claims that finish. Each sentence holds too where the claim only holds, and the caller acks."""

    def test_what_a_claim_finished_is_stored_no_longer_and_the_rest_is_held(self, bench: Bench) -> None:
        bundles = [bench.given() for _ in range(3)]
        taken = bench.claim(2, finish=Finish())
        assert taken.messages == [*of_bundle(bundles[0]), *of_bundle(bundles[1])]
        assert taken.deliveries == {1}
        assert bench.held() == sorted(_open(taken))
        assert bench.waiting() == of_bundle(bundles[2])

    def test_what_a_claim_finished_never_comes_again(self, bench: Bench) -> None:
        bundle = bench.given()
        _finish(bench, bench.claim(lease=5, finish=Finish()))
        bench.advance(10)
        bench.append(bundle)
        assert bench.claim(by=bench.other).messages == []
        assert bench.stored() == []

    def test_a_claim_that_finishes_splits_a_slice_and_leaves_the_rest(self, bench: Bench) -> None:
        bundle = bench.given(5)
        for first in (0, 2):
            taken = bench.claim(2, finish=Finish())
            assert taken.messages == of_bundle(bundle, first, 2)
            _finish(bench, taken)
        assert bench.waiting() == of_bundle(bundle, 4)
        (rest,) = bench.peek()
        assert rest.deliveries == 0

    def test_an_ack_of_what_a_claim_finished_finds_it_gone(self, bench: Bench) -> None:
        bench.given(3)
        taken = bench.claim(finish=Finish())
        _finish(bench, taken)
        answer = bench.ack(*taken.spans)
        assert sorted(of_spans(answer.gone)) == sorted(taken.messages)
        assert answer.lost == ()

    def test_a_claim_finishes_into_the_history_when_it_is_to_keep(self, bench: Bench) -> None:
        bundle = bench.given(2)
        _finish(bench, bench.claim(finish=Finish(keep=True)), keep=True)
        (kept,) = bench.peek(processed=True)
        assert of_slices([kept]) == of_bundle(bundle)
        assert (kept.deliveries, kept.state) == (1, EntryState.PROCESSED)

    def test_a_claim_keeps_no_history_unasked(self, bench: Bench) -> None:
        bench.given()
        _finish(bench, bench.claim(finish=Finish()))
        assert bench.history() == []

    def test_what_was_delivered_more_often_than_it_says_is_only_held(self, bench: Bench) -> None:
        bundle = bench.given(2)
        bench.claim(lease=5)
        bench.advance(10)
        taken = bench.claim(finish=Finish(most_deliveries=1))
        assert taken.deliveries == {2}
        assert bench.held() == _open(taken) == of_bundle(bundle)
        bench.release(*taken.spans)
        _finish(bench, bench.claim(finish=Finish(most_deliveries=3)))
        assert bench.stored() == []

    def test_what_came_before_the_moment_that_it_says_is_only_held(self, bench: Bench) -> None:
        bundle = bench.given(2)
        taken = bench.claim(finish=Finish(since=bundle.enqueued_at + 60_000_000))
        assert bench.held() == _open(taken) == of_bundle(bundle)

    @pytest.mark.parametrize("keys", KEYED)
    def test_what_has_keys_is_only_held(self, bench: Bench, keys: str) -> None:
        bundle = _of(bench, encode_bundle(KEYED[keys]))
        assert _open(bench.claim(finish=Finish())) == of_bundle(bundle)
        assert bench.held() == of_bundle(bundle)

    def test_what_cannot_be_read_is_only_held(self, bench: Bench) -> None:
        bundle = _of(bench, b"damaged")
        assert _open(bench.claim(finish=Finish())) == of_bundle(bundle)
        assert bench.held() == of_bundle(bundle)

    def test_a_claim_that_did_not_allow_it_finishes_nothing(self, bench: Bench) -> None:
        bundle = bench.given()
        assert _open(bench.claim()) == of_bundle(bundle)
        assert bench.held() == of_bundle(bundle)

    def test_a_repeated_claim_answers_what_it_finished_and_takes_nothing_else(self, bench: Bench) -> None:
        bundles = [bench.given(2), bench.given(2)]
        first = bench.claim(3, finish=Finish())
        for _ in range(2):
            again = bench.claim(3, token=first.token, finish=Finish())
            assert again.messages == first.messages
            assert again.deliveries == {1}
            assert [each.bundle for each in again.slices] == bundles
        assert bench.waiting() == of_bundle(bundles[1], 1)
        _finish(bench, again)
        assert bench.stored() == of_bundle(bundles[1], 1)

    def test_a_repeated_claim_finishes_what_came_only_when_the_first_found_nothing(
        self, bench: Bench
    ) -> None:
        first = bench.claim(finish=Finish())
        assert first.messages == []
        bundle = bench.given()
        again = bench.claim(token=first.token, finish=Finish())
        assert again.messages == of_bundle(bundle)
        _finish(bench, again)
        assert bench.stored() == []

    def test_claims_that_finish_take_each_message_once_whoever_makes_them(self, bench: Bench) -> None:
        bundle = bench.given(6)
        taken = [bench.claim(1, finish=Finish(), by=(bench.store, bench.other)[i % 2]) for i in range(6)]
        assert [message for each in taken for message in each.messages] == of_bundle(bundle)
        for each in taken:
            _finish(bench, each)
        assert bench.stored() == []


def _of(bench: Bench, data: bytes) -> Bundle:
    """Store a bundle with other data."""
    bundle = msgspec.structs.replace(bench.bundle(), data=data)
    bench.append(bundle)
    return bundle


def _open(taken: Taken) -> list[Message]:
    """Return the messages that a claim only holds."""
    return of_slices([each for each in taken.slices if not each.finished])


def _finish(bench: Bench, taken: Taken, *, keep: bool = False) -> None:
    """Ack the messages that a claim only holds."""
    spans = [span for span, each in zip(taken.spans, taken.slices, strict=True) if not each.finished]
    assert not spans or bench.ack(*spans, keep=keep) == Fenced()
