"""Timing claims on a queue whose backlog stays the same."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from statistics import median

import shardq
from shardq.bench.failure import BenchmarkFailed
from shardq.bench.load import Load, bodies

__all__ = ["fill", "time_claims"]

WARM_UP_CLAIMS = 5
TRANSACTION_MESSAGES = 500


def fill(queue: shardq.Queue, count: int, load: Load) -> None:
    """Send so many messages: in bundles or, for ``singles``, such that each is stored on its own."""
    items: Iterator[bytes | shardq.OutgoingMessage] = bodies(count, load.body_bytes)
    with queue.producer() as producer:
        producer.send_many(_apart(items) if load.singles else items)


def _apart(items: Iterator[bytes | shardq.OutgoingMessage]) -> Iterator[shardq.OutgoingMessage]:
    """Messages that are due a microsecond apart, which keeps them out of common bundles."""
    for body, place in zip(items, itertools.cycle(range(TRANSACTION_MESSAGES)), strict=False):
        yield shardq.OutgoingMessage(body=body, delay=place / 1_000_000)


def time_claims(queue: shardq.Queue, load: Load) -> float:
    """The median of many claims in milliseconds; what one takes is acked and sent again before the next."""
    times: list[float] = []
    with queue.consumer() as consumer:
        for _ in range(WARM_UP_CLAIMS + load.claims):
            began = time.perf_counter()
            batch = consumer.receive(load.batch, wait=0)
            times.append(time.perf_counter() - began)
            if len(batch) != load.batch:
                raise BenchmarkFailed(f"a claim of {load.batch} gave {len(batch)} messages")
            batch.ack()
            fill(queue, load.batch, load)
    return median(times[WARM_UP_CLAIMS:]) * 1_000
