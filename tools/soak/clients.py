"""What the processes of a soak do: producers at a steady rate, whatever the queue does, and consumers that measure.

It is an open loop: every message has a moment at which it is to be sent, and its latency counts from then. What was to
be sent meanwhile goes together, 20 times a second.
"""

from __future__ import annotations

import time

import msgspec

from shardq.worker.child_processes import Parent

from ..bench.stores.latency import moment_of, stamped
from ..bench.stores.stage import Place
from .plan import Plan

__all__ = ["Received", "Sent", "consume", "produce"]

PAUSE = 0.05
BATCH, WAIT = 500, 1.0


class Sent(msgspec.Struct, frozen=True):
    """So many messages were stored since the report before."""

    count: int


class Received(msgspec.Struct, frozen=True):
    """The seconds that each message of an acked batch took."""

    seconds: tuple[float, ...]


def produce(parent: Parent, place: Place, plan: Plan) -> None:
    """Send until told to end; reports each send."""
    rate = plan.rate / plan.producers
    with place.open() as queue, queue.producer() as producer:
        began, sent = parent.ready(), 0
        while not parent.wait(PAUSE):
            due = int((time.monotonic() - began) * rate)
            producer.send_many(stamped(began + number / rate, plan.body_bytes) for number in range(sent, due))
            parent.report(Sent(due - sent))
            sent = due


def consume(parent: Parent, place: Place) -> None:
    """Receive and ack until told to end; reports each batch."""
    with place.open() as queue, queue.consumer() as consumer:
        parent.ready()
        while not parent.stopped:
            batch = consumer.receive(BATCH, wait=WAIT)
            now = time.monotonic()
            seconds = tuple(now - moment_of(message.body) for message in batch)
            batch.ack()
            if seconds:
                parent.report(Received(seconds))
