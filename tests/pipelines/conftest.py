from __future__ import annotations

import pytest

import shardq
from shardq.testing import ManualClock
from tests.any_store import any_url, connect_any, name
from tests.quick_store import url

__all__ = ["any_url", "connect_any", "name", "url"]


@pytest.fixture
def client(url: str, clock: ManualClock) -> shardq.Client:
    return shardq.connect(url, clock=clock)
