from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import shardq
from shardq.tasks import Tasks
from shardq.testing import ManualClock
from tests.tasks.sums import Sums


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/queue.db?synchronous=normal"


@pytest.fixture
def client(url: str, clock: ManualClock) -> Iterator[shardq.Client]:
    with shardq.connect(url, clock=clock) as client:
        yield client


@pytest.fixture
def tasks(client: shardq.Client) -> Tasks:
    tasks = Tasks()
    tasks.bind(client)
    return tasks


@pytest.fixture
def sums(client: shardq.Client) -> Sums:
    return Sums(client)
