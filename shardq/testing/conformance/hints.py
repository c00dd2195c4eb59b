"""Contract: hints that make reads cheap hide nothing for good, because a deep probe uses none of them."""

# ruff: noqa: D102 -- the name of a test is its sentence
from __future__ import annotations

from collections.abc import Callable

import pytest

from shardq.storage.requests import Probe, ShardCounts
from shardq.testing.conformance.bench import Bench
from shardq.testing.conformance.contract import Contract
from shardq.testing.messages import Message, of_bundle

__all__ = ["HintContract"]

LONG_AGO = -600.0  # seconds of the test, as a delay


def waiting(bench: Bench) -> None:
    """Store messages of several priorities, due long ago and due now; finish one, and a part of another."""
    for priority in (5, 0, 9):
        bench.given(1, priority=priority, delay=LONG_AGO)
    bench.given(3, priority=3, delay=LONG_AGO)
    bench.given(2, priority=3)
    bench.append(*(bench.bundle(priority=7, delay=LONG_AGO) for _ in range(30)))
    bench.ack(*bench.claim(2).spans)


def given_back(bench: Bench) -> None:
    """Claim messages and release them."""
    bench.given(2, priority=2)
    bench.given(2, priority=4)
    bench.release(*bench.claim().spans)


def abandoned(bench: Bench) -> None:
    """Claim messages of consumers that are gone, whose leases have run out."""
    bench.given(2)
    bench.given()
    bench.claim(2, lease=5)
    bench.claim(1, lease=5)
    bench.advance(6)


def delayed(bench: Bench) -> None:
    """Send messages with a delay that has ended."""
    bench.given(2, delay=5)
    bench.given(priority=6, delay=5)
    bench.advance(6)


States = pytest.mark.parametrize("state", [waiting, given_back, abandoned, delayed])
State = Callable[[Bench], None]


class HintContract(Contract):
    """Every hint of a shard is made wrong behind the store's back, where it has any."""

    @States
    def test_a_deep_look_offers_what_every_hint_hides(self, bench: Bench, state: State) -> None:
        state(bench)
        first = min((each.bundle.priority, each.due) for each in bench.peek())
        bench.harness.raw_mislead(bench.shard)
        found = bench.probe(deep=True)
        assert (found.priority, found.due) == first

    @States
    def test_after_a_deep_look_every_client_finds_everything(self, bench: Bench, state: State) -> None:
        state(bench)
        stored = bench.stored()
        bench.harness.raw_mislead(bench.shard)
        bench.probe(deep=True)
        newcomer = bench.harness.open()
        clients = (bench.store, newcomer, bench.other)
        for client in clients:
            assert bench.probe(by=client).priority is not None
            assert client.count(bench.shard).ready == len(stored)
            assert client.shards(bench.queue) == (bench.shard,)
        got: list[Message] = []
        while len(got) < len(stored):
            for client in clients:
                taken = bench.claim(2, by=client)
                assert taken.messages or len(got) == len(stored)
                bench.ack(*taken.spans, by=client)
                got += taken.messages
        newcomer.close()
        assert sorted(got) == stored
        assert bench.other.count(bench.shard) == ShardCounts()

    @States
    def test_after_a_sweep_every_client_finds_what_every_hint_hid(self, bench: Bench, state: State) -> None:
        state(bench)
        stored = bench.stored()
        bench.harness.raw_mislead(bench.shard)
        bench.sweep()
        newcomer = bench.harness.open()
        for client in (bench.store, newcomer, bench.other):
            assert client.shards(bench.queue) == (bench.shard,)
            assert bench.probe(by=client).priority is not None
            assert client.count(bench.shard).ready == len(stored)
        assert sorted(bench.claim(by=newcomer).messages) == stored
        newcomer.close()

    def test_a_deep_look_at_a_shard_that_holds_nothing_finds_nothing(self, bench: Bench) -> None:
        bench.given(3)
        bench.ack(*bench.claim().spans)
        bench.harness.raw_mislead(bench.shard)
        assert bench.probe(deep=True) == Probe(bench.shard)
        assert bench.claim().messages == []

    def test_a_deep_look_tells_what_lies_ahead_as_a_full_one_does(self, bench: Bench) -> None:
        bench.given(2, delay=2_000)
        bench.given(1, priority=4, delay=LONG_AGO)
        bench.claim(1, lease=3_000)
        assert bench.probe(deep=True) == bench.probe()
        bench.given(1, priority=3, delay=LONG_AGO)
        assert bench.probe(deep=True) == bench.probe()

    def test_many_shards_are_looked_at_deeply_in_their_order(self, bench: Bench) -> None:
        shards = [bench.shard_of(bench.queue, 0, number) for number in range(1, 60)]
        full = [shards[7], shards[40]]
        for shard in full:
            bench.given(shard=shard, priority=2, delay=LONG_AGO)
            bench.harness.raw_mislead(shard)
        probes = bench.other.probe(shards, deep=True)
        assert [probe.shard for probe in probes] == shards
        assert [probe.shard for probe in probes if probe.priority is not None] == full

    def test_what_is_sent_while_hints_are_wrong_is_delivered_once_after_a_deep_look(
        self, bench: Bench
    ) -> None:
        bench.given()
        bench.ack(*bench.claim().spans)
        bench.harness.raw_mislead(bench.shard)
        sent = [bench.given(), bench.given(2, delay=LONG_AGO)]
        bench.probe(deep=True)
        got = bench.claim(by=bench.other).messages + bench.claim().messages
        assert sorted(got) == sorted(key for bundle in sent for key in of_bundle(bundle))
