"""What the tests of topics share: reading a subscription with nothing that relays in the background."""

from __future__ import annotations

from typing import Any

from shardq.client.queue import Queue
from shardq.topics import Subscription

__all__ = ["received", "waiting"]


def received(subscription: Subscription) -> list[Any]:
    """Receive and ack all that waits, without a thread that relays."""
    bodies: list[Any] = []
    with Queue.consumer(subscription.queue) as consumer:
        for batch in consumer.batches(1000, wait=0):
            bodies += batch.bodies
            batch.ack()
    return bodies


def waiting(subscription: Subscription) -> list[Any]:
    """What waits, without the markers of rounds."""
    return [stored.body for stored in subscription.queue.peek(10_000) if stored.priority < 9]
