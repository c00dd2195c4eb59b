"""What all tests share."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cassandra_server import cassandra_url
from mongodb_server import mongodb_url, replica_set_url
from redis_server import guarded_redis, own_redis, redis_url

import shardq
from shardq.testing import ManualClock

# Here and nowhere else: a fixture of two conftests would start two servers.
__all__ = ["cassandra_url", "guarded_redis", "mongodb_url", "own_redis", "redis_url", "replica_set_url"]

_names = itertools.count(1)

# A shell that runs the tests in its background lets them ignore this, and with them what they start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The URL of a fresh store."""
    return f"sqlite:///{tmp_path}/queue.db"


@pytest.fixture
def clock() -> ManualClock:
    """A clock that stands still until it is advanced."""
    return ManualClock()


@pytest.fixture
def connect(url: str, clock: ManualClock) -> Iterator[Callable[[], shardq.Client]]:
    """Opens independent clients of one store, on the manual clock."""
    clients: list[shardq.Client] = []

    def open_client() -> shardq.Client:
        client = shardq.connect(url, clock=clock, retry_seconds=0.5)
        clients.append(client)
        return client

    yield open_client
    for client in clients:
        client.close()


@pytest.fixture
def client(connect: Callable[[], shardq.Client]) -> shardq.Client:
    """A client of a fresh store, on the manual clock."""
    return connect()


@pytest.fixture
def queue(client: shardq.Client) -> shardq.Queue:
    """A fresh queue."""
    return client.create_queue(f"queue-{next(_names)}")
