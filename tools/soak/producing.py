"""A producer at a steady rate, whatever the queue does: an open loop.

Every message has a moment at which it is to be sent, and its latency counts from then. What was to be sent meanwhile
goes together, 20 times a second.
"""

from __future__ import annotations

import time
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event

import msgspec

from shardq.bench.stage import Place
from shardq.bench.stamps import stamped

from .plan import Plan

__all__ = ["Sent", "produce"]

PAUSE = 0.05


class Sent(msgspec.Struct, frozen=True):
    """So many messages were stored since the report before."""

    count: int


def produce(place: Place, plan: Plan, stop: Event, reports: Connection) -> None:
    """Send until ``stop``; reports each send."""
    rate = plan.rate / plan.producers
    with place.open() as queue, queue.producer() as producer:
        began, sent = time.monotonic(), 0
        while not stop.wait(PAUSE):
            due = int((time.monotonic() - began) * rate)
            producer.send_many(stamped(began + number / rate, plan.body_bytes) for number in range(sent, due))
            reports.send(Sent(due - sent))
            sent = due
