from __future__ import annotations

from pathlib import Path

import pytest

import shardq
from shardq.testing import ManualClock
from tests.any_store import any_url, connect_any, name

__all__ = ["any_url", "connect_any", "name"]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/queue.db?synchronous=normal"


@pytest.fixture
def client(url: str, clock: ManualClock) -> shardq.Client:
    return shardq.connect(url, clock=clock)
