"""The measurements of claims: how their time depends on what waits, and on what was consumed before."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from statistics import median

import shardq

from .load import Load, bodies
from .processes import BenchmarkFailed, Ready, run_alone
from .result import Sample
from .stage import Place, Stage

__all__ = ["claims", "time_claims"]

WARM_UP_CLAIMS = 5
MOST_ATTEMPTS = 3  # for each claim that counts
TRANSACTION_MESSAGES = 500
HISTORY_SECONDS = 3_600.0
DRAIN_BATCH = 1_000


def claims(stage: Stage, load: Load) -> Sample:
    """Milliseconds, the median of many claims of ``batch`` messages while ``backlog`` messages wait.

    Before, ``consumed`` messages are sent and acked; with ``history`` they are kept.
    """
    with stage.queue(history_retention=HISTORY_SECONDS if load.history else 0.0) as place:
        return Sample(run_alone(_claiming, place, load))


def _claiming(ready: Ready, place: Place, load: Load) -> float:
    with place.open() as queue:
        ready()
        if load.consumed:
            fill(queue, load.consumed, load)
            _drain(queue)
        fill(queue, load.backlog, load)
        return time_claims(queue, load)


def fill(queue: shardq.Queue, count: int, load: Load) -> None:
    """Send so many messages: in bundles or, for ``singles``, such that each is stored on its own."""
    items: Iterator[bytes | shardq.OutgoingMessage] = bodies(count, load.body_bytes)
    with queue.producer() as producer:
        producer.send_many(_apart(items) if load.singles else items)


def _apart(items: Iterator[bytes | shardq.OutgoingMessage]) -> Iterator[shardq.OutgoingMessage]:
    """Messages that are due a microsecond apart, which keeps them out of common bundles."""
    for body, place in zip(items, itertools.cycle(range(TRANSACTION_MESSAGES)), strict=False):
        yield shardq.OutgoingMessage(body=body, delay=place / 1_000_000)


def _drain(queue: shardq.Queue) -> None:
    with queue.consumer() as consumer:
        for batch in consumer.batches(DRAIN_BATCH, wait=0):
            batch.ack()


def time_claims(queue: shardq.Queue, load: Load) -> float:
    """The median of many claims in milliseconds; what one takes is acked and sent again before the next.

    A claim that ends with the shards it knows of may give fewer messages; it is not counted. Raises BenchmarkFailed.
    """
    times: list[float] = []
    wanted = WARM_UP_CLAIMS + load.claims
    with queue.consumer() as consumer:
        for _ in range(MOST_ATTEMPTS * wanted):
            began = time.perf_counter()
            batch = consumer.receive(load.batch, wait=0)
            taken = time.perf_counter() - began
            times += [taken] if len(batch) == load.batch else []
            batch.ack()
            fill(queue, len(batch), load)
            if len(times) == wanted:
                return median(times[WARM_UP_CLAIMS:]) * 1_000
    raise BenchmarkFailed(
        f"of {MOST_ATTEMPTS * wanted} claims of {load.batch} only {len(times)} gave as many messages"
    )
