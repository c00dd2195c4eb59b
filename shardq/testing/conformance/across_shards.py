"""Contract: where a store settles across shards, one step does what each request would do, one after the other."""

# ruff: noqa: D102 -- the name of a test is its sentence
from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from shardq.base.shard import Shard
from shardq.errors import QueueNotFound
from shardq.storage.abilities import CrossShardStore, Settle
from shardq.storage.listening import Waiter
from shardq.storage.requests import Acknowledge, Append, Extend, Fenced, Forward, Release, Span
from shardq.testing.conformance.bench import Bench
from shardq.testing.conformance.contract import Contract
from shardq.testing.messages import of_bundle, of_spans

__all__ = ["CrossShardContract"]

only_across = pytest.mark.usefixtures("across")


class CrossShardContract(Contract):
    """Settling in several shards in one step, where the store can."""

    @pytest.fixture
    def across(self, bench: Bench) -> None:
        """Skip a store that settles shard by shard."""
        if not bench.store.capabilities.settle_across_shards:
            pytest.skip("the store settles shard by shard")

    @only_across
    def test_requests_of_every_kind_and_of_any_queue_are_carried_out_together(self, bench: Bench) -> None:
        shards = [bench.shard, bench.shard_of(bench.queue, 1, 1), bench.shard_of(bench.new_queue(), 2, 5)]
        target = bench.shard_of(bench.new_queue(), 0, 3)
        bundles = [bench.given(2, shard=shard) for shard in (*shards, shards[0])]
        acked, released, extended = (bench.claim(2, shard=shard, lease=5) for shard in shards)
        moved = bench.claim(shard=shards[0])
        new = bench.bundle(2)
        answers = _settle(
            bench,
            Acknowledge(shards[0], acked.spans),
            Release(shards[1], released.spans),
            Extend(shards[2], extended.spans, bench.duration(60)),
            Forward(Acknowledge(shards[0], moved.spans), Append(target, (new,))),
        )
        assert answers == (Fenced(),) * 4
        assert bench.stored(shards[0]) == []
        assert bench.waiting(shards[1]) == of_bundle(bundles[1])
        assert bench.waiting(target) == of_bundle(new)
        bench.advance(30)
        assert bench.claim(shard=shards[2], by=bench.other).messages == []

    @only_across
    def test_each_request_is_told_what_is_lost_or_gone_of_its_own(self, bench: Bench) -> None:
        elsewhere = bench.shard_of(bench.queue, 1, 1)
        bench.given(2)
        there = bench.given(2, shard=elsewhere)
        here, stale = bench.claim(), bench.claim(shard=elsewhere, lease=5)
        bench.ack(here.span(0, 1))
        bench.advance(10)
        thief = bench.claim(1, shard=elsewhere, by=bench.other)
        gone, lost = _settle(bench, Acknowledge(bench.shard, here.spans), Release(elsewhere, stale.spans))
        assert (of_spans(gone.gone), gone.lost) == (of_spans([here.span(0, 1)]), ())
        assert (of_spans(lost.lost), lost.gone) == (thief.messages, ())
        assert bench.stored() == []
        assert bench.held(elsewhere) == of_bundle(there, 0, 1)

    @only_across
    def test_a_request_sees_what_those_before_it_have_done(self, bench: Bench) -> None:
        bench.given(3)
        taken = bench.claim()
        whole, part = taken.spans, (taken.span(1, 1),)
        answers = _settle(
            bench,
            Extend(bench.shard, whole, bench.duration(60)),
            Release(bench.shard, part),
            Acknowledge(bench.shard, whole),
            Acknowledge(bench.shard, (taken.span(0, 1),)),
        )
        named = [(of_spans(each.lost), of_spans(each.gone)) for each in answers]
        assert named == [([], []), ([], []), (of_spans(part), []), ([], of_spans([taken.span(0, 1)]))]

    @only_across
    def test_a_forward_that_is_not_carried_out_undoes_no_other_request(self, bench: Bench) -> None:
        target = bench.shard_of(bench.queue, 1, 1)
        bench.given(2)
        bench.given(1)
        taken = bench.claim()
        first, rest = taken.spans[0], taken.spans[1:]
        stranger = Span(bench.bundle().id, 0, 1, taken.token)
        acked, forwarded, released = _settle(
            bench,
            Acknowledge(bench.shard, (first,)),
            Forward(Acknowledge(bench.shard, (stranger, *rest)), Append(target, (bench.bundle(),))),
            Release(bench.shard, rest),
        )
        assert acked == released == Fenced()
        assert of_spans(forwarded.gone) == of_spans([stranger])
        assert bench.stored(target) == []
        assert bench.stored() == bench.waiting() == of_spans(rest)

    @only_across
    def test_a_request_that_is_refused_keeps_all_of_them_from_happening(self, bench: Bench) -> None:
        bundle = bench.given(3)
        taken = bench.claim()
        nowhere = Shard(bench.new_name(), 0, 0)
        requests: list[Settle] = [
            Acknowledge(bench.shard, (taken.span(0, 1),)),
            Forward(Acknowledge(bench.shard, (taken.span(1, 1),)), Append(nowhere, (bench.bundle(),))),
            Release(bench.shard, (taken.span(2, 1),)),
        ]
        for order in (requests, requests[::-1]):
            with pytest.raises(QueueNotFound):
                _settle(bench, *order)
            assert bench.held() == of_bundle(bundle)

    @only_across
    def test_what_is_released_with_others_ends_a_wait(self, bench: Bench) -> None:
        elsewhere = bench.shard_of(bench.new_queue(), 0, 0)
        bench.given(1)
        bench.given(1, shard=elsewhere)
        here, there = bench.claim(), bench.claim(shard=elsewhere)
        queues = (bench.queue, elsewhere.queue)
        waiter = Waiter(bench.store)
        while waiter.wait(queues, 0.0):
            pass
        _settle(bench, Acknowledge(bench.shard, here.spans), Release(elsewhere, there.spans))
        assert elsewhere.queue in waiter.wait(queues, 5.0)


def _settle(bench: Bench, *requests: Settle) -> Sequence[Fenced]:
    return cast("CrossShardStore", bench.store).settle(requests)
