"""Stores whose only signals come through Redis."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("redis", reason="the extra `redis` is not installed")

from shardq.base.shard import Shard
from shardq.storage.redis import open_redis
from shardq.storage.requests import QueueRecord
from shardq.storage.sqlite.store import SqliteStore
from shardq.storage.wrapped_store import SignalledStore
from tests.deaf_store import DeafStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue.db"


@pytest.fixture
def open_on(path: Path) -> Iterator[Callable[[str], SignalledStore]]:
    """Opens clients of one file that signal through the Redis at this URL and in no other way."""
    stores: list[SignalledStore] = []

    def open_one(redis: str) -> SignalledStore:
        stores.append(SignalledStore(DeafStore(SqliteStore(str(path))), open_redis(redis)))
        return stores[-1]

    yield open_one
    for store in stores:
        store.close()


@pytest.fixture
def shard(path: Path) -> Shard:
    """A shard of a queue that is there, of a name that no other test has."""
    store = SqliteStore(str(path))
    shard = Shard(f"queue-{os.urandom(6).hex()}", 0, 0)
    assert store.create_queue(QueueRecord(shard.queue, b"", 1))
    store.close()
    return shard
