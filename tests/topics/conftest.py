from __future__ import annotations

from collections.abc import Iterator

import pytest

import shardq
from shardq.testing import ManualClock
from shardq.topics import Topic
from shardq.topics.background import Background
from tests.quick_store import url

__all__ = ["url"]


@pytest.fixture
def nobody_relays_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let consumers of subscriptions start no threads that relay."""
    monkeypatch.setattr(Background, "serve_for", lambda background, seconds: None)


@pytest.fixture
def nobody_relays(monkeypatch: pytest.MonkeyPatch, nobody_relays_beside: None) -> None:
    """Leave relaying to the test: no threads do so beside it."""
    monkeypatch.setattr(Background, "published", lambda background: None)


@pytest.fixture
def client(url: str, clock: ManualClock, nobody_relays: None) -> Iterator[shardq.Client]:
    with shardq.connect(url, clock=clock) as client:
        yield client


@pytest.fixture
def topic(client: shardq.Client) -> Topic:
    return client.create_topic("orders", retention=3600)
