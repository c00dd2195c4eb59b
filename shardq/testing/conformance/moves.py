"""Contract: a message that was moved elsewhere is lost to its holder, not gone."""

# ruff: noqa: D102 -- the name of a test is its sentence
from __future__ import annotations

import os

import pytest

from shardq.storage.requests import Fenced, Span
from shardq.testing.conformance.bench import Bench
from shardq.testing.conformance.contract import Contract, exact_time
from shardq.testing.messages import of_bundle, of_spans

__all__ = ["MoveContract"]

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
