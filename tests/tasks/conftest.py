from __future__ import annotations

import pytest

import shardq
from shardq.tasks import Tasks
from tests.quick_store import url
from tests.tasks.sums import Sums

__all__ = ["url"]


@pytest.fixture
def tasks(client: shardq.Client) -> Tasks:
    tasks = Tasks()
    tasks.bind(client)
    return tasks


@pytest.fixture
def sums(client: shardq.Client) -> Sums:
    return Sums(client)
