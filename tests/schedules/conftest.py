from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import shardq
from shardq.testing import ManualClock
from tests.any_store import any_url, connect_any, name

__all__ = ["any_url", "client", "clock", "connect_any", "name", "url"]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()  # 2023-11-14T22:13:20Z


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/queue.db?synchronous=normal"


@pytest.fixture
def client(url: str, clock: ManualClock) -> Iterator[shardq.Client]:
    with shardq.connect(url, clock=clock, retry_seconds=0) as client:
        client.create_queue("q", shards=1, time_shards=1)
        yield client
