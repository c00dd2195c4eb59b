"""A queue on Cassandra, and stores whose requests can be made to fail or be traced."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from tests.cassandra_server import keyspace_beside

pytest.importorskip("cassandra.cluster", reason="the extra `cassandra` is not installed")

from shardq.sharding.shard import Shard
from shardq.storage.cassandra.store import CassandraStore
from shardq.storage.cassandra.url import parse
from shardq.storage.requests import QueueRecord


@pytest.fixture(scope="session")
def cassandra_url(cassandra_url: str) -> str:
    """A keyspace of their own: the conformance suite looks through whole tables, and must not meet their tombstones."""
    url = keyspace_beside(cassandra_url, "particular")
    store = CassandraStore(parse(url))
    store.create_schema()
    store.close()
    return url


@pytest.fixture
def open_store(cassandra_url: str) -> Iterator[Callable[[], CassandraStore]]:
    stores: list[CassandraStore] = []

    def open_one() -> CassandraStore:
        stores.append(CassandraStore(parse(cassandra_url)))
        return stores[-1]

    yield open_one
    for store in stores:
        store.close()


@pytest.fixture
def store(open_store: Callable[[], CassandraStore]) -> CassandraStore:
    return open_store()


@pytest.fixture
def shard(store: CassandraStore) -> Iterator[Shard]:
    queue = f"c{os.urandom(6).hex()}"
    assert store.create_queue(QueueRecord(queue, b"", 1))
    yield Shard(queue, 0, 0)
    store.drop_queue(queue)
