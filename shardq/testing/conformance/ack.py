"""Contracts: an ack finishes the messages that are still held, and reports the others.

Ack, extend and release act only while the claim is still the caller's.
"""

# ruff: noqa: D102 -- the name of a test is its sentence

from __future__ import annotations

import os

import pytest

from shardq.storage.requests import Fenced, ShardCounts, Span
from shardq.testing.conformance.bench import Bench
from shardq.testing.conformance.contract import Contract
from shardq.testing.messages import of_bundle, of_bundles, of_spans

__all__ = ["AckContract", "FencingContract"]


class AckContract(Contract):
    """Acknowledging whole claims and parts of them."""

    def test_an_acked_message_is_never_delivered_again(self, bench: Bench) -> None:
        bench.given(3)
        taken = bench.claim(lease=5)
        assert bench.ack(*taken.spans) == Fenced()
        assert bench.stored() == []
        bench.advance(60)
        assert bench.claim(by=bench.other).messages == []

    def test_an_ack_by_another_client_with_the_token_counts(self, bench: Bench) -> None:
        bench.given(3)
        taken = bench.claim()
        assert bench.ack(*taken.spans, by=bench.other) == Fenced()
        assert bench.stored() == []

    def test_a_bundle_goes_with_its_last_message(self, bench: Bench) -> None:
        bench.given(3)
        taken = bench.claim()
        for i in (1, 0, 2):
            assert bench.harness.raw_bundles(bench.shard) > 0
            assert bench.ack(taken.span(i, 1)) == Fenced()
        assert bench.harness.raw_bundles(bench.shard) == 0
        assert bench.leftovers() == {}

    def test_a_part_is_acked_and_the_rest_stays_held(self, bench: Bench) -> None:
        bundle = bench.given(6)
        taken = bench.claim()
        assert bench.ack(taken.span(2, 2)) == Fenced()
        assert bench.held() == [*of_bundle(bundle, 0, 2), *of_bundle(bundle, 4)]
        assert bench.claim(by=bench.other).messages == []

    def test_what_was_not_acked_of_a_claim_comes_back(self, bench: Bench) -> None:
        bundle = bench.given(6)
        taken = bench.claim(lease=5)
        bench.ack(taken.span(0, 1), taken.span(3, 1), taken.span(5, 1))
        bench.advance(10)
        again = bench.claim(by=bench.other)
        assert sorted(again.messages) == [*of_bundle(bundle, 1, 2), *of_bundle(bundle, 4, 1)]
        assert again.deliveries == {2}

    def test_a_part_of_a_split_claim_is_acked_while_the_rest_waits(self, bench: Bench) -> None:
        bundle = bench.given(6)
        bench.ack(*bench.claim(2).spans)
        assert bench.waiting() == of_bundle(bundle, 2)
        assert bench.harness.raw_bundles(bench.shard) > 0
        bench.ack(*bench.claim().spans)
        assert bench.leftovers() == {}

    def test_many_bundles_are_acked_at_once(self, bench: Bench) -> None:
        bench.append(*[bench.bundle(1 + i % 4, priority=i % 3) for i in range(150)])
        taken = bench.claim(10_000)
        assert bench.ack(*taken.spans) == Fenced()
        assert bench.leftovers() == {}

    def test_spans_of_one_ack_may_come_in_any_order(self, bench: Bench) -> None:
        bundle = bench.given(9)
        taken = bench.claim()
        assert bench.ack(taken.span(7, 2), taken.span(0, 1), taken.span(3, 2)) == Fenced()
        assert bench.held() == [*of_bundle(bundle, 1, 2), *of_bundle(bundle, 5, 2)]

    def test_one_span_covers_the_entries_that_its_slice_was_cut_into(self, bench: Bench) -> None:
        # Given a claim whose middle was extended on its own
        bench.given(6)
        taken = bench.claim(lease=30)
        bench.extend(taken.span(2, 2), lease=60)
        # Then one span still acks all of it
        assert bench.ack(taken.span(0, 6)) == Fenced()
        assert bench.leftovers() == {}

    def test_an_ack_of_two_claims_of_one_bundle_does_both(self, bench: Bench) -> None:
        bench.given(5)
        first, second = bench.claim(2), bench.claim()
        assert bench.ack(*second.spans, *first.spans) == Fenced()
        assert bench.leftovers() == {}

    def test_a_repeated_ack_tells_that_the_messages_are_gone(self, bench: Bench) -> None:
        bundle = bench.given(3)
        taken = bench.claim()
        bench.ack(*taken.spans)
        fenced = bench.ack(*taken.spans, by=bench.other)
        assert sorted(of_spans(fenced.gone)) == of_bundle(bundle)
        assert fenced.lost == ()

    def test_an_ack_that_is_partly_gone_does_the_rest(self, bench: Bench) -> None:
        bundle = bench.given(5)
        taken = bench.claim()
        bench.ack(taken.span(1, 2))
        fenced = bench.ack(*taken.spans)
        assert sorted(of_spans(fenced.gone)) == of_bundle(bundle, 1, 2)
        assert fenced.lost == ()
        assert bench.leftovers() == {}

    def test_a_message_that_never_was_is_gone(self, bench: Bench) -> None:
        bundle = bench.given(2)
        taken = bench.claim()
        stranger = Span(bench.bundle().id, 0, 1, taken.token)
        fenced = bench.ack(stranger)
        assert of_spans(fenced.gone) == of_spans([stranger])
        assert fenced.lost == ()
        assert bench.held() == of_bundle(bundle)

    def test_gone_and_lost_spans_carry_the_token_that_was_given(self, bench: Bench) -> None:
        bench.given(2)
        taken = bench.claim(lease=5)
        bench.ack(taken.span(0, 1))
        bench.advance(10)
        bench.claim(by=bench.other)
        fenced = bench.ack(*taken.spans)
        assert {span.token for span in (*fenced.gone, *fenced.lost)} == {taken.token}

    def test_an_empty_ack_does_nothing(self, bench: Bench) -> None:
        bundle = bench.given(2)
        assert bench.ack() == Fenced()
        assert bench.stored() == of_bundle(bundle)

    def test_an_ack_in_one_shard_does_not_reach_another(self, bench: Bench) -> None:
        other = bench.shard_of(bench.queue, 0, 1)
        bundle = bench.given(2, shard=other)
        taken = bench.claim(shard=other)
        fenced = bench.ack(*taken.spans)
        assert sorted(of_spans(fenced.gone)) == of_bundle(bundle)
        assert bench.held(other) == of_bundle(bundle)

    def test_the_counts_follow(self, bench: Bench) -> None:
        bundles = [bench.given(4), bench.given(4)]
        taken = bench.claim(6)
        bench.ack(taken.span(1, 3))
        counts = bench.other.count(bench.shard)
        assert (counts.ready, counts.in_flight, counts.processed) == (2, 3, 0)
        assert len(bench.stored()) == len(of_bundles(*bundles)) - 3
        bench.ack(*taken.spans)
        bench.ack(*bench.claim().spans)
        assert bench.other.count(bench.shard) == ShardCounts()


class FencingContract(Contract):
    """The worth of the token of a claim."""

    def test_a_lapsed_lease_that_nobody_claimed_still_acks(self, bench: Bench) -> None:
        bench.given(3)
        taken = bench.claim(lease=5)
        bench.advance(60)
        assert bench.ack(*taken.spans) == Fenced()
        assert bench.leftovers() == {}

    def test_a_lapsed_lease_that_nobody_claimed_can_be_extended(self, bench: Bench) -> None:
        bundle = bench.given(3)
        taken = bench.claim(lease=5)
        bench.advance(20)
        assert bench.extend(*taken.spans, lease=30) == Fenced()
        assert bench.claim(by=bench.other).messages == []
        assert bench.held() == of_bundle(bundle)

    def test_a_lapsed_lease_that_nobody_claimed_can_be_released(self, bench: Bench) -> None:
        bundle = bench.given(3)
        taken = bench.claim(lease=5)
        bench.advance(20)
        assert bench.release(*taken.spans, delay=30) == Fenced()
        assert bench.claim(by=bench.other).messages == []
        assert bench.waiting() == of_bundle(bundle)

    @pytest.mark.parametrize("use", ["ack", "keep", "extend", "release"])
    def test_a_claim_that_another_took_over_is_lost(self, bench: Bench, use: str) -> None:
        # Given a claim that ran out and was taken over
        bundle = bench.given(3)
        stale = bench.claim(lease=5)
        bench.advance(10)
        fresh = bench.claim(lease=30, by=bench.other)
        due = bench.peek()[0].due
        # When the first claimer comes back
        fenced = self._use(bench, use, *stale.spans)
        # Then it is notified, and the other one's hold is as it was
        assert sorted(of_spans(fenced.lost)) == of_bundle(bundle)
        assert fenced.gone == ()
        assert bench.held() == of_bundle(bundle)
        assert [each.due for each in bench.peek()] == [due]
        assert bench.ack(*fresh.spans) == Fenced()

    @pytest.mark.parametrize("use", ["ack", "keep", "extend", "release"])
    def test_a_released_message_is_lost_to_its_former_holder(self, bench: Bench, use: str) -> None:
        bundle = bench.given(3)
        taken = bench.claim()
        bench.release(*taken.spans)
        fenced = self._use(bench, use, *taken.spans)
        assert sorted(of_spans(fenced.lost)) == of_bundle(bundle)
        assert fenced.gone == ()
        assert bench.claim(by=bench.other).messages == of_bundle(bundle)

    @pytest.mark.parametrize("use", ["ack", "keep", "extend", "release"])
    def test_a_message_that_was_never_claimed_is_lost(self, bench: Bench, use: str) -> None:
        bundle = bench.given(2)
        fenced = self._use(bench, use, Span(bundle.id, 0, 2, os.urandom(16)))
        assert sorted(of_spans(fenced.lost)) == of_bundle(bundle)
        assert bench.waiting() == of_bundle(bundle)

    @pytest.mark.parametrize("use", ["ack", "keep", "extend", "release"])
    def test_a_wrong_token_is_lost(self, bench: Bench, use: str) -> None:
        bundle = bench.given(2)
        taken = bench.claim()
        for token in (os.urandom(16), taken.token[:-1] + bytes([taken.token[-1] ^ 1]), bytes(16)):
            fenced = self._use(bench, use, Span(bundle.id, 0, 2, token))
            assert sorted(of_spans(fenced.lost)) == of_bundle(bundle)
        assert bench.held() == of_bundle(bundle)

    @pytest.mark.parametrize("use", ["extend", "release"])
    def test_a_finished_message_is_gone(self, bench: Bench, use: str) -> None:
        bundle = bench.given(2)
        taken = bench.claim()
        bench.ack(*taken.spans)
        fenced = self._use(bench, use, *taken.spans)
        assert sorted(of_spans(fenced.gone)) == of_bundle(bundle)
        assert fenced.lost == ()
        assert bench.stored() == []

    @pytest.mark.parametrize("use", ["ack", "extend", "release"])
    def test_a_message_of_the_history_is_gone(self, bench: Bench, use: str) -> None:
        bundle = bench.given(2)
        taken = bench.claim()
        bench.ack(*taken.spans, keep=True)
        fenced = self._use(bench, use, *taken.spans)
        assert sorted(of_spans(fenced.gone)) == of_bundle(bundle)
        assert bench.history() == of_bundle(bundle)

    def test_a_claim_of_which_a_part_was_taken_over_acks_the_rest(self, bench: Bench) -> None:
        # Given six messages, of which another client took two after the lease
        bundle = bench.given(6)
        stale = bench.claim(lease=5)
        bench.advance(10)
        fresh = bench.claim(2, by=bench.other)
        # When the first claimer acks all six in one span
        fenced = bench.ack(stale.span(0, 6))
        # Then the four that nobody else has are done
        assert sorted(of_spans(fenced.lost)) == sorted(fresh.messages) == of_bundle(bundle, 0, 2)
        assert fenced.gone == ()
        assert bench.stored() == of_bundle(bundle, 0, 2)
        assert bench.ack(*fresh.spans) == Fenced()
        assert bench.leftovers() == {}

    def test_one_span_may_be_lost_gone_and_held_at_once(self, bench: Bench) -> None:
        # Given a claim of which one client took and acked a part, and another took a second part
        bundle = bench.given(6)
        stale = bench.claim(lease=5)
        bench.advance(10)
        bench.ack(*bench.claim(2, by=bench.other).spans)
        bench.claim(2, by=bench.other)
        fenced = bench.ack(stale.span(0, 6))
        assert sorted(of_spans(fenced.gone)) == of_bundle(bundle, 0, 2)
        assert sorted(of_spans(fenced.lost)) == of_bundle(bundle, 2, 2)
        assert bench.stored() == of_bundle(bundle, 2, 2)

    def test_a_part_that_was_lost_from_the_middle_stays_with_its_holder(self, bench: Bench) -> None:
        # Given five messages, of which the middle was released and claimed by another
        bundle = bench.given(5)
        first = bench.claim(lease=300)
        bench.release(first.span(2, 1))
        second = bench.claim(by=bench.other)
        assert second.messages == of_bundle(bundle, 2, 1)
        # When the first claimer releases everything
        fenced = bench.release(first.span(0, 5), delay=60)
        # Then the middle is not touched
        assert of_spans(fenced.lost) == of_bundle(bundle, 2, 1)
        assert bench.held() == of_bundle(bundle, 2, 1)
        assert bench.waiting() == [*of_bundle(bundle, 0, 2), *of_bundle(bundle, 3)]

    def test_an_extension_of_a_claim_that_is_half_lost_holds_the_other_half(self, bench: Bench) -> None:
        bundle = bench.given(4)
        stale = bench.claim(lease=5)
        bench.advance(10)
        bench.claim(2, lease=5, by=bench.other)
        fenced = bench.extend(*stale.spans, lease=600)
        assert sorted(of_spans(fenced.lost)) == of_bundle(bundle, 0, 2)
        bench.advance(20)
        assert bench.claim().messages == of_bundle(bundle, 0, 2)

    def test_taking_over_and_back_does_not_revive_an_old_token(self, bench: Bench) -> None:
        bundle = bench.given(2)
        tokens = []
        for _ in range(3):
            tokens.append(bench.claim(lease=5))
            bench.advance(10)
        for stale in tokens[:2]:
            assert sorted(of_spans(bench.ack(*stale.spans).lost)) == of_bundle(bundle)
        assert bench.ack(*tokens[2].spans) == Fenced()

    def _use(self, bench: Bench, use: str, *spans: Span) -> Fenced:
        match use:
            case "extend":
                return bench.extend(*spans, lease=900)
            case "release":
                return bench.release(*spans)
            case _:
                return bench.ack(*spans, keep=use == "keep")
