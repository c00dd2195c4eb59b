"""What a client remembers of queues and shards is bounded, and it goes on with what it forgot."""

from __future__ import annotations

import os

import pytest

from shardq.base.shard import Shard
from shardq.storage.mongodb import claims, directory, queues
from shardq.storage.mongodb.store import MongoStore
from shardq.storage.requests import Acknowledge, Append, Claim, Fenced, QueueRecord, Span
from shardq.testing import BundleFactory

pytestmark = pytest.mark.server

MOST = 3
MINUTE = 60_000_000


def test_a_client_remembers_few_of_many_queues_and_works_on_in_all(
    store: MongoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, bound in ((queues, "_MOST"), (directory, "_MOST"), (claims, "_MOST_SHARDS")):
        monkeypatch.setattr(module, bound, MOST)
    shards = [Shard(f"c{os.urandom(6).hex()}", 0, 0) for _ in range(2 * MOST)]
    make = BundleFactory(store.now)
    for shard in shards:
        assert store.create_queue(QueueRecord(shard.queue, b"", 1))
    for shard in 2 * shards:
        bundle, token = make(), os.urandom(16)
        store.append(Append(shard, (bundle,)))
        assert [each.bundle.id for each in store.claim(Claim(shard, token, 1, MINUTE)).slices] == [bundle.id]
        done = store.acknowledge(Acknowledge(shard, (Span(bundle.id, 0, 1, token),), keep=True))
        assert done == Fenced()
    remembered = store.client.collections, store.claims.sizes, store.incarnations
    assert all(0 < known.remembered() <= MOST for known in remembered)
    for shard in shards:
        store.drop_queue(shard.queue)
