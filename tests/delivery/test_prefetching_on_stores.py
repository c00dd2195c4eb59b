"""Claiming ahead from several queues, on every store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import shardq
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
