from __future__ import annotations

from typing import Any

import pytest

import shardq
from shardq.broadcast import Broadcast, Subscription, broadcast
from shardq.broadcast.broadcast import Entry
from tests.quick_store import url

__all__ = ["url"]


@pytest.fixture
def entries(monkeypatch: pytest.MonkeyPatch) -> list[Entry]:
    """The entries of subscribers, in the order of their making. No thread keeps them: a test does, or they die."""
    made: list[Entry] = []

    def note(client: shardq.Client, broadcast: str) -> Entry:
        made.append(entry := Entry(client, broadcast))
        return entry

    monkeypatch.setattr(broadcast, "Entry", note)
    monkeypatch.setattr(broadcast, "keep_alive", lambda *_: None)
    return made


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
