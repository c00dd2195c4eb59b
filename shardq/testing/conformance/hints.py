"""Contracts: the directory and the probe find messages.

Hints that make reads cheap hide nothing for good, because a deep probe uses none of them.
"""

# ruff: noqa: D102 -- the name of a test is its sentence

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from shardq.storage.requests import Probe, ShardCounts
from shardq.testing.conformance.bench import Bench
from shardq.testing.conformance.contract import Contract, exact_time, run_together
from shardq.testing.messages import Message, of_bundle

__all__ = ["DirectoryContract", "HintContract"]


class DirectoryContract(Contract):
    """Finding shards."""

    def test_every_shard_with_messages_is_in_the_directory(self, bench: Bench) -> None:
        places = [(0, 0), (0, 1), (1, 0), (1, 11), (11, 1), (499, 99)]
        shards = {bench.shard_of(bench.queue, *place) for place in places}
        for shard in shards:
            bench.given(shard=shard)
        listed = bench.other.shards(bench.queue)
        assert shards <= set(listed)
        assert len(set(listed)) == len(listed)

    def test_a_shard_is_listed_while_its_messages_are_held_or_delayed(self, bench: Bench) -> None:
        delayed = bench.shard_of(bench.queue, 1, 0)
        bench.given(delay=600, shard=delayed)
        bench.given()
        bench.claim()
        assert {bench.shard, delayed} <= set(bench.other.shards(bench.queue))

    def test_queues_do_not_list_the_shards_of_others(self, bench: Bench) -> None:
        other = bench.shard_of(bench.new_queue(bench.queue + ".0"), 3, 3)
        bench.given(shard=other)
        bench.given()
        assert bench.store.shards(bench.queue) == (bench.shard,)
        assert bench.store.shards(other.queue) == (other,)

    def test_a_queue_without_messages_has_no_shard_that_holds_any(self, bench: Bench) -> None:
        assert all(bench.store.count(shard).oldest is None for shard in bench.store.shards(bench.queue))

    def test_an_empty_shard_is_forgotten(self, bench: Bench) -> None:
        bench.given()
        bench.ack(*bench.claim().spans)
        assert bench.forget() is True
        assert bench.shard not in bench.other.shards(bench.queue)

    def test_a_shard_with_messages_in_any_state_is_not_forgotten(self, bench: Bench) -> None:
        bench.given(2)
        assert bench.store.drop_if_empty(bench.shard) is False
        taken = bench.claim()
        assert bench.store.drop_if_empty(bench.shard) is False
        bench.release(*taken.spans, delay=600)
        assert bench.store.drop_if_empty(bench.shard) is False
        assert bench.shard in bench.other.shards(bench.queue)

    def test_a_forgotten_shard_is_listed_again_with_its_next_message(self, bench: Bench) -> None:
        bench.given()
        bench.ack(*bench.claim().spans)
        assert bench.forget(by=bench.other)
        bundle = bench.given()
        assert bench.shard in bench.other.shards(bench.queue)
        assert bench.claim(by=bench.other).messages == of_bundle(bundle)

    def test_forgetting_leaves_other_shards_listed(self, bench: Bench) -> None:
        other = bench.shard_of(bench.queue, 0, 1)
        bench.given(shard=other)
        bench.given()
        bench.store.purge(bench.shard)
        assert bench.forget() is True
        assert bench.other.shards(bench.queue) == (other,)

    def test_forgetting_beside_an_append_loses_no_message(self, bench: Bench) -> None:
        for _ in range(12):
            # When one client forgets an empty shard while another appends to it
            bundle = bench.bundle()
            run_together(
                [
                    partial(bench.persist, bench.forget),
                    partial(bench.persist, partial(bench.append, bundle, by=bench.other)),
                ]
            )
            # Then the message is stored and can be found
            assert bench.waiting() == of_bundle(bundle)
            assert bench.shard in bench.store.shards(bench.queue)
            bench.ack(*bench.claim().spans)

    def test_an_empty_shard_offers_nothing(self, bench: Bench) -> None:
        assert bench.probe() == Probe(bench.shard)
        bench.given()
        bench.ack(*bench.claim().spans)
        assert bench.probe().empty

    def test_a_probe_tells_the_first_message_that_can_be_claimed(self, bench: Bench) -> None:
        bench.given(priority=6)
        first = bench.given(priority=2)
        bench.given(priority=2)
        assert bench.probe() == Probe(bench.shard, priority=2, due=first.due)

    def test_a_probe_tells_the_earliest_due_time_ahead(self, bench: Bench) -> None:
        bench.given(priority=0, delay=600)
        soon = bench.given(priority=7, delay=60)
        assert bench.probe() == Probe(bench.shard, next_due=soon.due)
        ready = bench.given(priority=9)
        assert bench.probe() == Probe(bench.shard, priority=9, due=ready.due, next_due=soon.due)

    def test_the_end_of_a_lease_is_a_due_time_ahead(self, bench: Bench) -> None:
        bench.given(priority=3)
        until = bench.claim(lease=60).claimed.lease_until
        assert bench.probe() == Probe(bench.shard, next_due=until)

    def test_the_end_of_a_releases_delay_is_a_due_time_ahead(self, bench: Bench) -> None:
        bench.given()
        bench.release(*bench.claim().spans, delay=90)
        assert bench.probe() == Probe(bench.shard, next_due=bench.peek()[0].due)

    def test_a_lapsed_lease_can_be_claimed(self, bench: Bench) -> None:
        bench.given(priority=3)
        until = bench.claim(lease=5).claimed.lease_until
        bench.advance(10)
        assert bench.probe() == Probe(bench.shard, priority=3, due=until)

    @exact_time
    def test_a_message_can_be_claimed_exactly_when_it_is_due(self, bench: Bench) -> None:
        bundle = bench.given(delay=10)
        bench.advance(9.999999)
        assert bench.probe() == Probe(bench.shard, next_due=bundle.due)
        bench.advance(0.000001)
        assert bench.probe() == Probe(bench.shard, priority=0, due=bundle.due)

    def test_the_history_offers_nothing(self, bench: Bench) -> None:
        bench.given(3)
        bench.ack(*bench.claim().spans, keep=True)
        assert bench.probe().empty

    def test_many_shards_are_probed_in_their_order(self, bench: Bench) -> None:
        shards = [bench.shard_of(bench.queue, i // 10, i % 10) for i in range(40)]
        for i in range(0, 40, 3):
            bench.given(priority=i % 10, shard=shards[i])
        asked = list(reversed(shards))
        probes = bench.other.probe(asked)
        assert [probe.shard for probe in probes] == asked
        assert [probe.priority for probe in reversed(probes)] == [
            i % 10 if i % 3 == 0 else None for i in range(40)
        ]

    def test_a_probe_of_no_shards_is_empty(self, bench: Bench) -> None:
        assert bench.store.probe([]) == ()


LONG_AGO = -600.0  # seconds of the test, as a delay


def waiting(bench: Bench) -> None:
    """Store messages of several priorities, due long ago and due now; finish one, and a part of another."""
    for priority in (5, 0, 9):
        bench.given(1, priority=priority, delay=LONG_AGO)
    bench.given(3, priority=3, delay=LONG_AGO)
    bench.given(2, priority=3)
    bench.append(*(bench.bundle(priority=7, delay=LONG_AGO) for _ in range(30)))
    bench.ack(*bench.claim(2).spans)


def released(bench: Bench) -> None:
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


States = pytest.mark.parametrize("state", [waiting, released, abandoned, delayed])
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
