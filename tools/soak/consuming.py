"""A consumer that looks at every message and measures how long it took."""

from __future__ import annotations

import time
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event

import msgspec

from shardq.bench.stage import Place
from shardq.bench.stamps import moment_of

__all__ = ["Received", "consume"]

BATCH, WAIT = 500, 1.0


class Received(msgspec.Struct, frozen=True):
    """The seconds that each message of an acked batch took."""

    seconds: tuple[float, ...]


def consume(place: Place, stop: Event, reports: Connection) -> None:
    """Receive and ack until ``stop``; reports each batch."""
    with place.open() as queue, queue.consumer() as consumer:
        while not stop.is_set():
            batch = consumer.receive(BATCH, wait=WAIT)
            now = time.monotonic()
            seconds = tuple(now - moment_of(message.body) for message in batch)
            batch.ack()
            if seconds:
                reports.send(Received(seconds))
