"""The sweep removes messages that are older than the queue's retention, whether anybody receives or not."""

from __future__ import annotations

from typing import Any

import pytest

import shardq
from shardq.testing import ManualClock


def make(client: shardq.Client, **settings: Any) -> shardq.Queue:
    return client.create_queue("q", **{"shards": 2, "time_shards": 1, "retention": 100, **settings})


def bodies(queue: shardq.Queue) -> set[bytes]:
    return {message.body for message in queue.peek(10_000)}


@pytest.mark.parametrize("paused", [False, True])
def test_what_is_too_old_is_removed_and_counted_and_the_rest_stays(
    client: shardq.Client, clock: ManualClock, paused: bool
) -> None:
    queue = make(client)
    producer = queue.producer(bundle_messages=7)
    producer.send_many([b"old-%d" % number for number in range(2_500)])
    producer.send_many([b"late-%d" % number for number in range(5)], delay=1_000)
    clock.advance(60)
    producer.send_many([b"new-%d" % number for number in range(30)])
    producer.send(b"first", priority=0)
    if paused:
        queue.pause()
    clock.advance(60)
    assert queue.sweep() >= 2_505
    assert bodies(queue) == {b"new-%d" % number for number in range(30)} | {b"first"}
    assert client.counters.expired == 2_505
    assert {message.deliveries for message in queue.peek(100)} == {0}
    queue.sweep()
    assert client.counters.expired == 2_505


def test_what_is_held_stays_until_its_lease_is_over(client: shardq.Client, clock: ManualClock) -> None:
    queue = make(client, visibility_timeout=150)
    queue.producer(bundle_messages=2).send_many([b"%d" % number for number in range(10)])
    batch = queue.consumer().receive(4)
    clock.advance(120)
    queue.sweep()
    assert bodies(queue) == {message.body for message in batch}
    batch[0].ack()
    clock.advance(60)
    queue.sweep()
    assert bodies(queue) == set()
    assert client.counters.expired == 9


def test_without_a_retention_nothing_is_too_old(client: shardq.Client, clock: ManualClock) -> None:
    queue = make(client, retention=None)
    queue.producer().send(b"x")
    clock.advance(10_000_000)
    queue.sweep()
    assert bodies(queue) == {b"x"}


def test_a_queue_deleted_and_created_again_goes_on_for_those_that_use_it(
    client: shardq.Client, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everybody follows, or is told that there is no such queue; nobody goes on in silence."""
    monkeypatch.setattr("shardq.core.context.queue_context.REFRESH_SECONDS", -1.0)
    queue = client.create_queue("q", shards=2)
    producer, consumer = queue.producer(), queue.consumer()
    producer.send(b"before")
    assert len(consumer.receive(1)) == 1
    client.delete_queue("q")
    with pytest.raises(shardq.QueueNotFound):
        producer.send(b"nowhere")
    with pytest.raises(shardq.QueueNotFound):
        consumer.receive(1)
    client.create_queue("q", shards=3, visibility_timeout=77)
    producer.send(b"after")
    clock.advance(6)
    batch = consumer.receive(10)
    assert [message.body for message in batch] == [b"after"]
    assert (queue.settings.shards, queue.settings.visibility_timeout) == (3, 77)
    batch.ack()
    assert queue.peek() == []
