from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import shardq
from tests.quick_store import url

__all__ = ["url"]


@pytest.fixture
def client(url: str) -> Iterator[shardq.Client]:
    with shardq.connect(url) as client:
        yield client


@pytest.fixture
def queue(client: shardq.Client) -> shardq.Queue:
    return client.create_queue("jobs", shards=2, time_shards=2, max_deliveries=3, visibility_timeout=30)


@pytest.fixture
def handlers(monkeypatch: pytest.MonkeyPatch) -> str:
    """The module of the handlers; the processes of a pool inherit the path."""
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parent), *sys.path])
    return "handlers_for_tests"
