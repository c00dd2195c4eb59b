"""Redis wakes consumers as the signals of a store have to."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("redis", reason="the extra `redis` is not installed")

from shardq.storage.listening import Waiter
from shardq.storage.redis import open_redis
from shardq.storage.wrapped_store import SignalledStore
from shardq.testing.conformance.across_shards import CrossShardContract
from shardq.testing.conformance.signals import SignalContract
from tests.conformance.test_sqlite import SqliteHarness
from tests.deaf_store import DeafStore


class SignalledHarness(SqliteHarness):
    def __init__(self, folder: Path, redis_url: str) -> None:
        super().__init__(folder)
        self.redis_url = redis_url

    def open(self) -> SignalledStore:  # type: ignore[override]
        store = SignalledStore(DeafStore(super().open()), open_redis(self.redis_url))
        assert Waiter(store).wait(["the line"], 10.0), "the line does not stand"
        return store


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory, redis_url: str) -> SignalledHarness:
    return SignalledHarness(tmp_path_factory.mktemp("signalled"), redis_url)


class TestSignalsThroughRedis(SignalContract, CrossShardContract):
    """The contract of signals, on a store that has none of its own, and of requests that signal together."""
