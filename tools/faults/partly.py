"""A queue of which one shard is away: the others have to go on, and nothing of it may be missing afterwards."""

from __future__ import annotations

import time
from contextlib import suppress

import shardq
from shardq.base.receipt import MessageId
from shardq.client import Client
from shardq.storage.store import Store

from .away import Away
from .dial import Dial, Loss

__all__ = ["go_on_without_a_shard"]

BUNDLES, SHARDS = 10, 4
PASSING = (shardq.StoreUnavailable, shardq.OutcomeUnknown, shardq.LeaseLost)


def go_on_without_a_shard(store: Store, dial: Dial, name: str, loss: Loss, patience: float) -> list[str]:
    """Receive everything of the other shards while one is away, then the rest; tells what did not come.

    ``patience`` is for each of the two, in seconds. Raises what sending raises.
    """
    client = Client(Away(store, dial, name), retry_seconds=10)
    with suppress(shardq.QueueExists):
        client.create_queue(name, shards=SHARDS, time_shards=1, visibility_timeout=5, max_deliveries=None)
    queue = client.queue(name)
    queue.purge()
    with queue.producer() as producer:
        # One shard after the other.
        sent = {each for _ in range(BUNDLES) for each in producer.send_many([b"partly"] * 3)}
    shards = {each: MessageId.parse(each).shard for each in sent}
    lost = min(shards.values())
    dial.away = (lost.time_shard, lost.number, loss)
    try:
        others = {each for each, shard in shards.items() if shard != lost}
        left = _receive(queue, others, patience)
        problems = (
            [f"queue {name}: {len(left)} messages stood still while only {lost} was away"] if left else []
        )
    finally:
        dial.away = None
    left = _receive(queue, (sent - others) | left, patience)
    if left:
        problems.append(f"queue {name}: {len(left)} messages did not come when {lost} was there again")
    return problems


def _receive(queue: shardq.Queue, wanted: set[str], patience: float) -> set[str]:
    """Receive and ack until all of these came; returns what is missing."""
    left, until = set(wanted), time.monotonic() + patience
    with queue.consumer() as consumer:
        while left and time.monotonic() < until:
            with suppress(*PASSING):
                batch = consumer.receive(10, wait=0.2)
                left -= {message.id for message in batch}
                batch.ack()
    return left
