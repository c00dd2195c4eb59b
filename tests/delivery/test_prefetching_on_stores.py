"""Claiming ahead from several queues, and of groups, on every store."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import shardq
from shardq.base.clock import SystemClock
from shardq.storage.opening import open_store
from shardq.testing import FaultKind, FaultPlan, FaultyStore
from tests.any_store import any_url, connect_any, name

__all__ = ["any_url", "connect_any", "name"]


def test_what_is_claimed_ahead_from_several_queues_comes_once_and_is_counted_once(
    connect_any: Callable[[], shardq.Client], name: str
) -> None:
    client = connect_any()
    names = [f"{name}{number}" for number in range(3)]
    for each in names:
        queue = client.create_queue(each, shards=2, time_shards=1, max_deliveries=2)
        queue.producer(bundle_messages=10).send_many([each.encode()] * 40)
    got: Counter[str | None] = Counter()
    with connect_any().consumer(names, prefetch=20, weights={names[0]: 2}) as consumer:
        while got.total() < 100:
            batch = consumer.receive(7, wait=30)
            assert {(message.queue, message.deliveries) for message in batch} == {(batch.queue, 1)}
            got[batch.queue] += len(batch)
            batch.ack()
    with connect_any().consumer(names) as consumer:  # what waited was given back, and not counted
        while got.total() < 120:
            batch = consumer.receive(20, wait=30)
            assert {message.deliveries for message in batch} == {1}
            got[batch.queue] += len(batch)
            batch.ack()
    assert got == dict.fromkeys(names, 40)


def test_nothing_is_handed_out_behind_what_expired_while_it_waited_and_stays(
    any_url: str, connect_any: Callable[[], shardq.Client], name: str
) -> None:
    store = FaultyStore(open_store(any_url, SystemClock()), FaultPlan())
    connect_any().create_queue(name, visibility_timeout=5)
    with shardq.Client(store, retry_seconds=0) as client:
        queue = client.queue(name)
        assert queue.consumer().receive(1, wait=0).bodies == []  # what is made at first is made
        with queue.producer() as producer:
            producer.send(b"first", group=name)
            producer.send(b"expires", group=name, ttl=3)
            producer.send_many([b"next", b"last"], group=name)
        with queue.consumer(prefetch=4) as consumer:
            (first,) = consumer.receive(1, wait=30)
            store.plan = FaultPlan(
                probability=1.0, kinds=(FaultKind.UNAVAILABLE,), methods=frozenset({"acknowledge"})
            )
            time.sleep(3)
            assert [consumer.receive(1).bodies for _ in range(3)] == [[]] * 3
            store.plan = FaultPlan()
            first.ack()
            found: list[bytes] = []
            while len(found) < 2:
                batch = consumer.receive(1, wait=30)
                found += batch.bodies
                batch.ack()
            assert found == [b"next", b"last"]
