"""What a client remembers of queues is bounded, and it goes on with what it forgot."""

from __future__ import annotations

import os

import pytest

from shardq.base.shard import Shard
from shardq.storage.cassandra import queues
from shardq.storage.cassandra.store import CassandraStore
from shardq.storage.requests import Append, QueueRecord
from shardq.testing import BundleFactory

pytestmark = pytest.mark.server

MOST = 3


def test_a_client_remembers_few_of_many_queues_and_works_on_in_all(
    store: CassandraStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "_MOST", MOST)
    shards = [Shard(f"c{os.urandom(6).hex()}", 0, 0) for _ in range(2 * MOST)]
    make = BundleFactory(store.now)
    for shard in shards:
        assert store.create_queue(QueueRecord(shard.queue, b"", 1))
    for shard in 2 * shards:
        store.append(Append(shard, (make(),)))
    assert store.incarnations.remembered() <= MOST
    assert [store.count(shard).ready for shard in shards] == [2] * len(shards)
    for shard in shards:
        store.drop_queue(shard.queue)
