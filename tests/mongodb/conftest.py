"""A queue on MongoDB, and a proxy that makes requests fail."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial

import pytest

pymongo = pytest.importorskip("pymongo", reason="the extra `mongodb` is not installed")

from pymongo.database import Database  # noqa: E402

from shardq.base.shard import Shard  # noqa: E402
from shardq.storage.clocks import ServerClock  # noqa: E402
from shardq.storage.mongodb.session import Session, clock_leads  # noqa: E402
from shardq.storage.mongodb.store import MongoStore  # noqa: E402
from shardq.storage.mongodb.url import parse  # noqa: E402
from shardq.storage.requests import QueueRecord  # noqa: E402
from tests.mongodb.lossy_proxy import LossyProxy  # noqa: E402


@pytest.fixture
def stores() -> list[MongoStore]:
    """Those that the test has opened."""
    return []


@pytest.fixture
def open_store(mongodb_url: str, stores: list[MongoStore]) -> Iterator[Callable[..., MongoStore]]:
    session = Session(parse(mongodb_url))
    # What two clients measure might differ by more than a request takes.
    clock = ServerClock(partial(clock_leads, session))

    def open_one(url: str = mongodb_url) -> MongoStore:
        stores.append(MongoStore(parse(url), clock=clock if url == mongodb_url else None))
        return stores[-1]

    yield open_one
    session.close()
    for store in stores:
        store.close()


@pytest.fixture
def store(open_store: Callable[..., MongoStore]) -> MongoStore:
    return open_store()


@pytest.fixture
def database(mongodb_url: str) -> Iterator[Database]:
    with pymongo.MongoClient(mongodb_url) as client:
        yield client.get_default_database()


@pytest.fixture
def shard(store: MongoStore) -> Iterator[Shard]:
    """A shard of a queue of before there were incarnations: its collection is named as it."""
    queue = f"c{os.urandom(6).hex()}"
    assert store.create_queue(QueueRecord(queue, b"", 1))
    store.session.collection("shardq.queue").update_one({"_id": queue}, {"$unset": {"incarnation": 1}})
    yield Shard(queue, 0, 0)
    store.drop_queue(queue)


@pytest.fixture
def proxy(mongodb_url: str, stores: list[MongoStore]) -> Iterator[LossyProxy]:
    host, port = parse(mongodb_url).hosts[0].split(":")
    proxy = LossyProxy(host, int(port))
    yield proxy
    for store in stores:  # while the server is there: else the driver looks for it for ten seconds
        store.close()
    proxy.close()


@pytest.fixture
def proxied(mongodb_url: str, proxy: LossyProxy) -> str:
    """The URL of the same database through the proxy."""
    return f"mongodb://127.0.0.1:{proxy.port}/{parse(mongodb_url).database}?directConnection=true"
