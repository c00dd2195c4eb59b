"""Contracts: a forward acks and appends in one atomic step.

A message that was moved elsewhere is lost to its holder, not gone.
"""

# ruff: noqa: D102 -- the name of a test is its sentence

from __future__ import annotations

import os

import pytest

from shardq.base.shard import Shard
from shardq.errors import QueueNotFound, UnsupportedByStore
from shardq.storage.requests import Fenced, Span
from shardq.testing.conformance.bench import Bench
from shardq.testing.conformance.contract import Contract, exact_time
from shardq.testing.messages import of_bundle, of_bundles, of_spans

__all__ = ["ForwardContract", "MoveContract"]


class ForwardContract(Contract):
    """Forwarding within a shard, and to another one where the store can."""

    @pytest.fixture(params=["same shard", "same queue", "another queue"])
    def target(self, bench: Bench, request: pytest.FixtureRequest) -> Shard:
        """Name where to forward to; what the store cannot do is skipped."""
        if request.param == "same shard":
            return bench.shard
        if not bench.store.capabilities.forward_across_shards:
            pytest.skip("the store forwards within a shard only")
        return bench.shard_of(bench.queue if request.param == "same queue" else bench.new_queue(), 2, 5)

    def test_what_is_forwarded_is_finished_here_and_waits_there(self, bench: Bench, target: Shard) -> None:
        bench.given(3)
        taken = bench.claim()
        new = bench.bundle(2, priority=1)
        assert bench.forward(taken.spans, new, to=target) == Fenced()
        assert bench.held() == []
        assert bench.waiting(target) == of_bundle(new)
        assert bench.claim(shard=target, by=bench.other).slices[0].bundle == new

    def test_a_part_is_forwarded_and_the_rest_stays_held(self, bench: Bench, target: Shard) -> None:
        bundle = bench.given(4)
        taken = bench.claim()
        new = bench.bundle(1)
        assert bench.forward((taken.span(1, 1), taken.span(3, 1)), new, to=target) == Fenced()
        assert bench.held() == [*of_bundle(bundle, 0, 1), *of_bundle(bundle, 2, 1)]
        assert bench.waiting(target) == of_bundle(new)

    def test_several_bundles_are_forwarded_together(self, bench: Bench, target: Shard) -> None:
        bench.given(2)
        bench.given(2)
        new = [bench.bundle(1), bench.bundle(3)]
        assert bench.forward(bench.claim().spans, *new, to=target) == Fenced()
        assert bench.stored(target) == of_bundles(*new)

    def test_as_many_bytes_are_forwarded_together_as_the_capabilities_state(
        self, bench: Bench, target: Shard
    ) -> None:
        pieces = [bench.given() for _ in range(8)]
        size = bench.store.capabilities.max_forward_bytes // len(pieces)
        new = [bench.bundle(data=b"x" * size) for _ in pieces]
        assert bench.forward(bench.claim(len(pieces)).spans, *new, to=target) == Fenced()
        assert bench.stored(target) == of_bundles(*new)

    def test_one_lost_message_keeps_everything_from_happening(self, bench: Bench, target: Shard) -> None:
        # Given five claimed messages of which one is another client's now
        bundle = bench.given(5)
        stale = bench.claim(lease=5)
        bench.advance(10)
        fresh = bench.claim(1, by=bench.other)
        # When all five are forwarded
        fenced = bench.forward(stale.spans, bench.bundle(5), to=target)
        # Then nothing has happened and the one is named
        assert sorted(of_spans(fenced.lost)) == sorted(fresh.messages)
        assert fenced.gone == ()
        assert bench.stored() == of_bundle(bundle)
        assert target == bench.shard or bench.stored(target) == []
        assert bench.ack(stale.span(1, 4)) == Fenced()

    def test_one_finished_message_keeps_everything_from_happening(self, bench: Bench, target: Shard) -> None:
        bundle = bench.given(3)
        taken = bench.claim()
        bench.ack(taken.span(0, 1))
        fenced = bench.forward(taken.spans, bench.bundle(3), to=target)
        assert of_spans(fenced.gone) == of_bundle(bundle, 0, 1)
        assert fenced.lost == ()
        assert bench.held() == of_bundle(bundle, 1)
        assert bench.waiting(target) == []

    def test_a_repeated_forward_changes_nothing(self, bench: Bench, target: Shard) -> None:
        bundle = bench.given(2)
        taken = bench.claim()
        new = bench.bundle(2)
        bench.forward(taken.spans, new, to=target)
        fenced = bench.forward(taken.spans, new, to=target)
        assert sorted(of_spans(fenced.lost)) == of_bundle(bundle)
        assert fenced.gone == ()
        assert bench.stored(target) == of_bundle(new)

    def test_a_forward_repeated_after_its_bundle_was_finished_revives_nothing(
        self, bench: Bench, target: Shard
    ) -> None:
        bench.given(2)
        taken = bench.claim()
        new = bench.bundle(2)
        bench.forward(taken.spans, new, to=target)
        bench.ack(*bench.claim(shard=target).spans, shard=target)
        bench.forward(taken.spans, new, to=target)
        assert bench.stored(target) == []

    def test_a_forward_of_a_bundle_that_is_there_already_only_acks(self, bench: Bench, target: Shard) -> None:
        bench.given(2)
        taken = bench.claim()
        new = bench.bundle(2)
        bench.append(new, shard=target)
        assert bench.forward(taken.spans, new, to=target) == Fenced()
        assert bench.held() == []
        assert bench.waiting(target) == of_bundle(new)

    def test_a_lapsed_lease_that_nobody_claimed_forwards(self, bench: Bench, target: Shard) -> None:
        bench.given(2)
        taken = bench.claim(lease=5)
        bench.advance(10)
        new = bench.bundle()
        assert bench.forward(taken.spans, new, to=target) == Fenced()
        assert sorted(bench.stored() + (bench.stored(target) if target != bench.shard else [])) == of_bundle(
            new
        )

    def test_forwarded_messages_can_be_kept_as_processed(self, bench: Bench, target: Shard) -> None:
        bundle = bench.given(2)
        new = bench.bundle(2)
        assert bench.forward(bench.claim().spans, new, to=target, keep=True) == Fenced()
        assert bench.history() == of_bundle(bundle)
        assert bench.stored(target) == of_bundle(new)

    def test_the_target_is_in_the_directory(self, bench: Bench, target: Shard) -> None:
        bench.given()
        bench.forward(bench.claim().spans, bench.bundle(), to=target)
        assert target in bench.other.shards(target.queue)

    def test_a_forward_to_a_missing_queue_acks_nothing(self, bench: Bench) -> None:
        bundle = bench.given(2)
        taken = bench.claim()
        with pytest.raises((QueueNotFound, UnsupportedByStore)):
            bench.forward(taken.spans, bench.bundle(), to=Shard(bench.new_name(), 0, 0))
        assert bench.held() == of_bundle(bundle)
        assert bench.ack(*taken.spans) == Fenced()

    def test_a_store_that_cannot_forward_across_shards_says_so(self, bench: Bench) -> None:
        if bench.store.capabilities.forward_across_shards:
            pytest.skip("the store forwards across shards")
        bundle = bench.given(2)
        taken = bench.claim()
        target = bench.shard_of(bench.queue, 2, 5)
        with pytest.raises(UnsupportedByStore):
            bench.forward(taken.spans, bench.bundle(), to=target)
        assert bench.held() == of_bundle(bundle)
        assert bench.stored(target) == []


every_use = pytest.mark.parametrize("use", ["ack", "keep", "extend", "release", "forward"])
every_move = pytest.mark.parametrize("move", ["ack", "forward"])


class MoveContract(Contract):
    """Acks of what is stored elsewhere now, forwards, and settling afterwards."""

    @every_use
    @every_move
    def test_what_another_moved_is_lost_to_its_former_holder(self, bench: Bench, move: str, use: str) -> None:
        # Given a claim that ran out, and another client that took it over and moved it
        bundle = bench.given(3)
        stale = bench.claim(lease=5)
        bench.advance(10)
        _move(bench, move, *bench.claim(by=bench.other).spans)
        # When the first claimer comes back
        fenced = _use(bench, use, *stale.spans)
        # Then it is notified that another client has it
        assert sorted(of_spans(fenced.lost)) == of_bundle(bundle)
        assert fenced.gone == ()

    @every_use
    @every_move
    def test_it_is_lost_to_the_mover_and_to_strangers_too(self, bench: Bench, move: str, use: str) -> None:
        bundle = bench.given(2)
        taken = bench.claim()
        _move(bench, move, *taken.spans)
        for token in (taken.token, os.urandom(16)):
            fenced = _use(bench, use, Span(bundle.id, 0, 2, token))
            assert sorted(of_spans(fenced.lost)) == of_bundle(bundle)
            assert fenced.gone == ()

    def test_a_move_finishes_as_an_ack_does(self, bench: Bench) -> None:
        bundle = bench.given(3)
        taken = bench.claim()
        assert bench.ack(taken.span(0, 2), moved=True) == Fenced()
        assert bench.held() == of_bundle(bundle, 2)
        assert bench.ack(taken.span(2, 1), moved=True) == Fenced()
        assert bench.stored() == []
        bench.append(bundle)
        assert bench.stored() == []

    def test_moved_messages_can_be_kept_as_processed(self, bench: Bench) -> None:
        bundle = bench.given(2)
        taken = bench.claim()
        assert bench.ack(*taken.spans, keep=True, moved=True) == Fenced()
        assert bench.history() == of_bundle(bundle)
        assert sorted(of_spans(bench.ack(*taken.spans).lost)) == of_bundle(bundle)

    def test_in_one_span_the_moved_the_acked_and_the_held_are_told_apart(self, bench: Bench) -> None:
        bundle = bench.given(6)
        taken = bench.claim()
        bench.ack(taken.span(0, 1))
        bench.ack(taken.span(1, 2), moved=True)
        bench.ack(taken.span(4, 1), moved=True)
        fenced = bench.ack(taken.span(0, 6))
        assert of_spans(fenced.gone) == of_bundle(bundle, 0, 1)
        assert sorted(of_spans(fenced.lost)) == [*of_bundle(bundle, 1, 2), *of_bundle(bundle, 4, 1)]
        assert bench.stored() == []

    @pytest.mark.parametrize("end", ["ack", "remove", "purge"])
    @every_use
    def test_what_was_finished_or_removed_for_good_is_gone(self, bench: Bench, end: str, use: str) -> None:
        bundle = bench.given(1)
        taken = bench.claim()
        match end:
            case "ack":
                bench.ack(*taken.spans)
            case "remove":
                bench.other.remove(bench.shard, bundle.id, 0)
            case _:
                bench.other.purge(bench.shard)
        fenced = _use(bench, use, *taken.spans)
        assert of_spans(fenced.gone) == of_bundle(bundle)
        assert fenced.lost == ()

    def test_what_was_lost_to_a_mover_was_not_moved(self, bench: Bench) -> None:
        # Given a client that says it moved what another one holds by now, and that one's ack
        bundle = bench.given(2)
        stale = bench.claim(lease=5)
        bench.advance(10)
        fresh = bench.claim(by=bench.other)
        assert sorted(of_spans(bench.ack(*stale.spans, moved=True).lost)) == of_bundle(bundle)
        assert bench.ack(*fresh.spans) == Fenced()
        # Then it is gone, as acked messages are
        assert sorted(of_spans(bench.ack(*fresh.spans).gone)) == of_bundle(bundle)

    @exact_time
    def test_a_move_is_known_for_fifteen_minutes(self, bench: Bench) -> None:
        bundle = bench.given(2)
        taken = bench.claim()
        bench.ack(*taken.spans, moved=True)
        bench.advance(15 * 60 - 1)
        bench.sweep()
        assert sorted(of_spans(bench.ack(*taken.spans).lost)) == of_bundle(bundle)

    def test_a_move_is_known_when_the_shard_is_forgotten(self, bench: Bench) -> None:
        bundle = bench.given(2)
        taken = bench.claim()
        bench.ack(*taken.spans, moved=True)
        bench.forget()
        assert sorted(of_spans(bench.ack(*taken.spans).lost)) == of_bundle(bundle)


def _move(bench: Bench, move: str, *spans: Span) -> None:
    if move == "ack":
        assert bench.ack(*spans, moved=True, by=bench.other) == Fenced()
    else:
        assert bench.forward(spans, bench.bundle()) == Fenced()


def _use(bench: Bench, use: str, *spans: Span) -> Fenced:
    match use:
        case "extend":
            return bench.extend(*spans, lease=900)
        case "release":
            return bench.release(*spans)
        case "forward":
            return bench.forward(spans, bench.bundle())
        case _:
            return bench.ack(*spans, keep=use == "keep")
