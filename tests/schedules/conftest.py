from __future__ import annotations

from collections.abc import Iterator

import pytest

import shardq
from shardq.testing import ManualClock
from tests.any_store import any_url, connect_any, name
from tests.quick_store import url

__all__ = ["any_url", "connect_any", "name", "url"]


@pytest.fixture
def client(url: str, clock: ManualClock) -> Iterator[shardq.Client]:
    with shardq.connect(url, clock=clock, retry_seconds=0) as client:
        client.create_queue("q", shards=1, time_shards=1)
        yield client
