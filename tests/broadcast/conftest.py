from __future__ import annotations

from typing import Any

import pytest

import shardq
from shardq.broadcast import Broadcast, Subscription
from tests.quick_store import url

__all__ = ["url"]


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
