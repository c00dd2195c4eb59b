"""Clients whose clocks are wrong lose nothing and double nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest

from shardq.base.shard import Shard
from shardq.errors import StoreUnavailable
from shardq.storage.cassandra.session import clock_leads
from shardq.storage.cassandra.store import CassandraStore
from shardq.storage.clocks import uptime
from shardq.storage.requests import (
    Acknowledge,
    Append,
    Bundle,
    Claim,
    Claimed,
    Fenced,
    QueueRecord,
    ShardCounts,
    Span,
)
from shardq.testing import BundleFactory

pytestmark = pytest.mark.server

MINUTE = 60_000_000


@pytest.fixture(params=[-5 * MINUTE, -MINUTE, MINUTE, 5 * MINUTE])
def skewed(open_store: Callable[[], CassandraStore], request: pytest.FixtureRequest) -> CassandraStore:
    store = open_store()
    cluster = store.session.connected.get().cluster
    cluster.timestamp_generator = lambda: time.time_ns() // 1000 + request.param
    return store


def made_at(store: CassandraStore, skew: int, count: int = 3) -> Bundle:
    """A bundle by a producer whose clock is wrong, due now."""
    bundle = BundleFactory(lambda: store.now() + skew)(count)
    return Bundle(bundle.id, 0, store.now(), store.now(), count, bundle.data)


def claim(store: CassandraStore, shard: Shard) -> tuple[Claimed, tuple[Span, ...]]:
    token = os.urandom(16)
    claimed = store.claim(Claim(shard, token, 100, MINUTE))
    return claimed, tuple(Span(each.bundle.id, each.first, each.count, token) for each in claimed.slices)


def test_every_step_works_whatever_the_clock_of_the_client_says(
    skewed: CassandraStore, store: CassandraStore, shard: Shard
) -> None:
    for sender, receiver in ((skewed, store), (store, skewed)):
        bundle = BundleFactory(sender.now)(3)
        sender.append(Append(shard, (bundle,)))
        claimed, spans = claim(receiver, shard)
        assert [each.bundle for each in claimed.slices] == [bundle]
        sender.append(Append(shard, (bundle,)))
        assert receiver.acknowledge(Acknowledge(shard, spans)) == Fenced()
        sender.append(Append(shard, (bundle,)))
        assert store.count(shard) == ShardCounts()
        while not skewed.drop_if_empty(shard):
            assert store.count(shard) == ShardCounts()
        assert store.shards(shard.queue) == ()


@pytest.mark.parametrize("skew", [-5 * MINUTE, -MINUTE, -1_000_000, 1_000_000, 8_000_000])
def test_a_bundle_made_behind_or_a_little_ahead_is_delivered_and_finished(
    store: CassandraStore, shard: Shard, skew: int
) -> None:
    bundle = made_at(store, skew)
    store.append(Append(shard, (bundle,)))
    claimed, spans = claim(store, shard)
    assert [each.bundle for each in claimed.slices] == [bundle]
    store.acknowledge(Acknowledge(shard, spans))
    store.append(Append(shard, (bundle,)))
    assert store.count(shard) == ShardCounts()


def test_a_bundle_made_far_ahead_waits_until_a_claim_of_it_can_stand(
    store: CassandraStore, shard: Shard
) -> None:
    # Given a bundle whose rows are of a time 3 seconds from now
    bundle = made_at(store, 13_000_000)
    store.append(Append(shard, (bundle,)))
    # Then it is not claimed yet, because the claim's delete would not count
    assert claim(store, shard)[1] == ()
    assert store.count(shard).ready == 3
    # And it is delivered once, later
    time.sleep(3.2)
    claimed, spans = claim(store, shard)
    assert [each.bundle for each in claimed.slices] == [bundle]
    store.acknowledge(Acknowledge(shard, spans))
    assert claim(store, shard)[1] == ()
    assert store.count(shard) == ShardCounts()


def test_a_bundle_that_comes_late_is_found_by_clients_that_were_there_before(
    open_store: Callable[[], CassandraStore], store: CassandraStore, shard: Shard
) -> None:
    consumers = [store, open_store()]
    make = BundleFactory(store.now)
    for consumer in consumers:
        store.append(Append(shard, (make(),)))
        consumer.acknowledge(Acknowledge(shard, claim(consumer, shard)[1]))
    for consumer in consumers:
        late = make(delay=-3600)
        store.append(Append(shard, (late, make())))
        claimed, spans = claim(consumer, shard)
        assert claimed.slices[0].bundle == late
        consumer.acknowledge(Acknowledge(shard, spans))


def test_consumers_of_a_queue_made_again_are_seen_whatever_the_clock_of_who_dropped_it(
    skewed: CassandraStore, store: CassandraStore
) -> None:
    name = f"c{os.urandom(6).hex()}"
    record = QueueRecord(name, b"", 1)
    for owner in (skewed, store, skewed):
        assert owner.create_queue(record)
        for client in (store, skewed):
            assert [each and each.consumers for each in client.register_consumer([name], "one", MINUTE)] == [
                ("one",)
            ]
            (store if client is skewed else skewed).deregister_consumer(name, "one")
            assert [each and each.consumers for each in client.register_consumer([name], "two", MINUTE)] == [
                ("two",)
            ]
            client.deregister_consumer(name, "two")
        owner.drop_queue(name)


def test_the_clock_goes_by_every_node_near_by(store: CassandraStore, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a node that answers within a second, or does not
    before = store.now()
    assert len(clock_leads(store.session)) == 1
    (node,) = store.session.nodes()
    asked: list[object] = []
    read = store.session.read

    def noted(*query: object, **options: object) -> object:
        asked.append(options.get("node"))
        if options.get("node") is not None:
            raise StoreUnavailable("this node hangs, on purpose")
        return read(*query, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(store.session, "read", noted)
    # Then what is left is asked
    (lead,) = clock_leads(store.session)
    assert asked[0] == node
    assert asked[-1] is None
    assert abs(lead + uptime() - before) < MINUTE
