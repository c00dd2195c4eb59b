"""A store in a new file, and what its tests send."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shardq.base.shard import Shard
from shardq.storage.requests import Append, Bundle, QueueRecord
from shardq.storage.sqlite.store import SqliteStore
from shardq.testing import ManualClock

MakeBundle = Callable[..., Bundle]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue.db"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(path: Path, clock: ManualClock) -> Iterator[SqliteStore]:
    store = SqliteStore(str(path), clock=clock, busy_timeout=0.2)
    store.create_queue(QueueRecord("orders", b"", 1))
    yield store
    store.close()


@pytest.fixture
def shard() -> Shard:
    return Shard("orders", 3, 1)


@pytest.fixture
def bundle(clock: ManualClock) -> MakeBundle:
    numbers = itertools.count(1)

    def make(count: int = 1, *, priority: int = 0, data: bytes = b"body") -> Bundle:
        now = clock.now()
        return Bundle(next(numbers).to_bytes(16, "big"), priority, now, now, count, data)

    return make


@pytest.fixture
def send(store: SqliteStore, shard: Shard, bundle: MakeBundle) -> Callable[..., Bundle]:
    def send_one(count: int = 1, **kwargs: object) -> Bundle:
        sent = bundle(count, **kwargs)
        store.append(Append(shard, (sent,)))
        return sent

    return send_one
