from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shardq
from shardq.broadcast import Broadcast, Subscription
from shardq.testing import ManualClock


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
def news(client: shardq.Client) -> Broadcast:
    return Broadcast(client, "news")


def received(subscription: Subscription) -> list[Any]:
    """The bodies of all that is there, which is acked."""
    bodies = []
    for batch in subscription.batches(10, wait=0):
        bodies += batch.bodies
        batch.ack()
    return bodies
