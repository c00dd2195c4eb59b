"""Contract: a call whose outcome is unknown can be repeated."""

# ruff: noqa: D102 -- the name of a test is its sentence
from __future__ import annotations

import os

import pytest

from shardq.storage.requests import Claim, Fenced
from shardq.testing.conformance.bench import Bench
from shardq.testing.conformance.contract import Contract, exact_time
from shardq.testing.messages import of_bundle, of_bundles, of_spans

__all__ = ["RetryContract"]


class RetryContract(Contract):
    """Repeating claims; the other calls are repeated in their own contracts."""

    def test_a_repeated_claim_yields_the_same_messages(self, bench: Bench) -> None:
        bench.given(3)
        bench.given(3)
        first = bench.claim(4)
        again = bench.claim(4, token=first.token, by=bench.other)
        assert again.slices == first.slices
        assert bench.held() == sorted(first.messages)

    def test_a_repeated_claim_counts_no_delivery(self, bench: Bench) -> None:
        bench.given(3)
        first = bench.claim(2, lease=5)
        for _ in range(3):
            assert bench.claim(2, token=first.token, lease=5).deliveries == {1}
        bench.advance(10)
        assert {each.deliveries for each in bench.claim().slices if each.first == 0} == {2}

    def test_a_repeated_claim_takes_nothing_more_whatever_its_limit(self, bench: Bench) -> None:
        bundle = bench.given(5)
        first = bench.claim(2)
        assert bench.claim(5, token=first.token).messages == first.messages
        assert bench.waiting() == of_bundle(bundle, 2)

    def test_a_repeated_claim_gets_a_fresh_lease(self, bench: Bench) -> None:
        bench.given(2)
        first = bench.claim(lease=30)
        bench.advance(20)
        again = bench.claim(token=first.token, lease=30)
        assert again.claimed.lease_until > first.claimed.lease_until
        bench.advance(20)
        assert bench.claim(by=bench.other).messages == []

    @exact_time
    def test_the_fresh_lease_counts_from_the_repetition(self, bench: Bench) -> None:
        bench.given(2)
        first = bench.claim(lease=30)
        bench.advance(20)
        again = bench.claim(token=first.token, lease=30)
        assert again.claimed.lease_until == bench.store.now() + 30_000_000
        assert [each.due for each in bench.peek()] == [again.claimed.lease_until]

    def test_a_claim_repeated_after_its_lease_still_holds_what_nobody_took(self, bench: Bench) -> None:
        bundle = bench.given(4)
        first = bench.claim(lease=5)
        bench.advance(10)
        again = bench.claim(token=first.token, lease=30, by=bench.other)
        assert again.messages == of_bundle(bundle)
        assert again.deliveries == {1}
        assert bench.claim().messages == []

    def test_a_repeated_claim_leaves_out_what_was_acked(self, bench: Bench) -> None:
        bundle = bench.given(5)
        first = bench.claim(4)
        bench.ack(first.span(1, 2))
        again = bench.claim(4, token=first.token)
        assert sorted(again.messages) == [*of_bundle(bundle, 0, 1), *of_bundle(bundle, 3, 1)]
        assert bench.waiting() == of_bundle(bundle, 4)

    def test_a_repeated_claim_leaves_out_what_was_released(self, bench: Bench) -> None:
        bundle = bench.given(4)
        first = bench.claim()
        bench.release(first.span(0, 1), first.span(2, 1))
        again = bench.claim(token=first.token)
        assert sorted(again.messages) == [*of_bundle(bundle, 1, 1), *of_bundle(bundle, 3)]
        assert bench.waiting() == [*of_bundle(bundle, 0, 1), *of_bundle(bundle, 2, 1)]

    @pytest.mark.parametrize("limit", [1, 6])
    def test_a_repeated_claim_leaves_out_what_took_its_place_again(self, bench: Bench, limit: int) -> None:
        bundle = bench.given(5)
        first = bench.claim(started=False)
        bench.release(first.span(0, 2), started=False)
        again = bench.claim(limit, token=first.token, started=False, by=bench.other)
        assert again.messages == of_bundle(bundle, 2)
        assert bench.waiting() == of_bundle(bundle, 0, 2)

    def test_a_repeated_claim_leaves_out_what_others_claimed_and_put_back_in_its_place(
        self, bench: Bench
    ) -> None:
        bundle = bench.given(5)
        first = bench.claim(started=False, lease=1)
        bench.advance(2)
        taken_over = bench.claim(2, started=False, by=bench.other)
        bench.release(*taken_over.spans, started=False, by=bench.other)
        again = bench.claim(token=first.token, started=False)
        assert again.messages == of_bundle(bundle, 2)
        assert bench.waiting() == of_bundle(bundle, 0, 2)

    def test_a_repeated_claim_leaves_out_what_others_claimed(self, bench: Bench) -> None:
        bundle = bench.given(5)
        first = bench.claim(lease=5)
        bench.advance(10)
        taken_over = bench.claim(2, by=bench.other)
        again = bench.claim(token=first.token)
        assert again.messages == of_bundle(bundle, 2)
        assert bench.ack(*taken_over.spans) == Fenced()

    def test_a_claim_repeated_when_it_holds_nothing_claims_afresh(self, bench: Bench) -> None:
        first_bundle = bench.given(2)
        first = bench.claim(2)
        assert first.messages == of_bundle(first_bundle)
        bench.ack(*first.spans)
        bundle = bench.given(2)
        again = bench.claim(2, token=first.token)
        assert again.messages == of_bundle(bundle)
        assert bench.ack(*again.spans) == Fenced()

    def test_a_claim_repeated_after_an_empty_one_claims(self, bench: Bench) -> None:
        first = bench.claim()
        assert first.messages == []
        bundle = bench.given(2)
        assert bench.claim(token=first.token).messages == of_bundle(bundle)

    def test_a_repeated_claim_names_only_its_own_shard(self, bench: Bench) -> None:
        other = bench.shard_of(bench.queue, 0, 1)
        bundles = [bench.given(2), bench.given(2, shard=other)]
        token = os.urandom(16)
        assert bench.claim(token=token).messages == of_bundle(bundles[0])
        assert bench.claim(token=token, shard=other).messages == of_bundle(bundles[1])

    def test_every_step_of_a_message_may_be_done_twice(self, bench: Bench) -> None:
        # When a consumer repeats each of its calls as if no answer had come
        bundles = [bench.bundle(3), bench.bundle(2)]
        bench.append(*bundles)
        bench.append(*bundles)
        token = os.urandom(16)
        request = Claim(bench.shard, token, 4, bench.duration(60))
        bench.claim(4, token=token, lease=60)
        taken = bench.claim(4, token=token, lease=60)
        assert taken.claimed.slices == bench.store.claim(request).slices
        bench.extend(*taken.spans)
        bench.extend(*taken.spans)
        bench.ack(*taken.spans)
        assert sorted(of_spans(bench.ack(*taken.spans).gone)) == sorted(taken.messages)
        # Then each message was handed out once and one is left
        assert bench.stored() == of_bundles(*bundles)[4:]
