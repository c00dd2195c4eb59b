"""A queue on Cassandra, and stores whose requests can be made to fail or be traced."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any

import pytest

from tests.cassandra_server import keyspace_beside

pytest.importorskip("cassandra.cluster", reason="the extra `cassandra` is not installed")

from shardq.base.shard import Shard
from shardq.storage.cassandra.session import Session, Statement, clock_leads
from shardq.storage.cassandra.store import CassandraStore
from shardq.storage.cassandra.url import parse
from shardq.storage.clocks import ServerClock
from shardq.storage.requests import QueueRecord
from tests.cassandra.drops import LateDrops


@pytest.fixture(scope="session")
def cassandra_url(cassandra_url: str) -> str:
    """A keyspace of their own: the conformance suite looks through whole tables, and must not meet their tombstones."""
    url = keyspace_beside(cassandra_url, "particular")
    store = CassandraStore(parse(url))
    store.create_schema()
    store.close()
    return url


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many requests are sent to shards, of each kind."""
    sent: Counter[str] = Counter()
    start_read, apply = Session.start_read, Session.apply

    def noted_read(session: Session, query: str, *rest: Any, **options: Any) -> Any:
        sent["read"] += "FROM entry" in query  # not whether the queue is there still
        return start_read(session, query, *rest, **options)

    def noted_apply(session: Session, statements: Sequence[Statement]) -> bool:
        sent["batch"] += any(" entry " in statement for statement, _ in statements)
        return apply(session, statements)

    monkeypatch.setattr(Session, "start_read", noted_read)
    monkeypatch.setattr(Session, "apply", noted_apply)
    return sent


@pytest.fixture
def open_with(cassandra_url: str) -> Iterator[Callable[[type[Session]], tuple[CassandraStore, Any]]]:
    """Opens a store whose requests go through a session of this kind; returns both.

    They share a measure of the clock: what each measured might differ by more than a request takes.
    """
    stores: list[CassandraStore] = []
    address = parse(cassandra_url)
    session = Session(address)
    leads = cache(partial(clock_leads, session))

    def open_one(kind: type[Session]) -> tuple[CassandraStore, Any]:
        clock = ServerClock(lambda _: leads())
        stores.append(CassandraStore(address, session=kind(address), clock=clock))
        return stores[-1], stores[-1].session

    yield open_one
    session.close()
    for store in stores:
        store.close()


@pytest.fixture
def open_store(
    open_with: Callable[[type[Session]], tuple[CassandraStore, Any]],
) -> Callable[[], CassandraStore]:
    return lambda: open_with(Session)[0]


@pytest.fixture
def store(open_store: Callable[[], CassandraStore]) -> CassandraStore:
    return open_store()


@pytest.fixture(scope="module")
def drops(cassandra_url: str) -> Iterator[LateDrops]:
    drops = LateDrops()
    yield drops
    store = CassandraStore(parse(cassandra_url))
    drops.end(store)
    store.close()


@pytest.fixture
def shard(store: CassandraStore, drops: LateDrops) -> Iterator[Shard]:
    queue = f"c{os.urandom(6).hex()}"
    assert store.create_queue(QueueRecord(queue, b"", 1))
    yield Shard(queue, 0, 0)
    drops.add([queue])
