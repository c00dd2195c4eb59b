"""A forked child waits for no lock of its parent's client."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

import shardq
from shardq.storage.mongodb.store import MongoStore
from tests.forking import all_held, forked

pytestmark = pytest.mark.server


def test_a_child_uses_its_parents_client_although_every_lock_of_it_was_held(
    open_store: Callable[[], MongoStore],
) -> None:
    client = shardq.Client(open_store())
    queue = client.create_queue(f"f{os.urandom(6).hex()}", shards=1, time_shards=1)
    producer = queue.producer()
    producer.send(b"parent")

    def use() -> str:
        producer.send(b"child")
        with queue.consumer() as consumer:
            batch = consumer.receive(10, wait=10)
            batch.ack()
        return str(len(batch))

    with all_held(client, queue, producer):
        assert forked(use) == "2"
    producer.send(b"parent")
    assert queue.counts().ready == 1
    client.delete_queue(queue.name)
