"""Receiving processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import shardq
from shardq.bench.failure import BenchmarkFailed
from shardq.bench.load import Load
from shardq.bench.processes import Job, Span, rate, run_together
from shardq.bench.result import Sample
from shardq.bench.stage import Place

__all__ = ["check_all_received", "read_bodies", "receive_into", "receiving"]

PATIENCE = 1.0  # seconds without a message after which a consumer has done its part; not in the figures


def read_bodies(batch: shardq.Batch) -> int:
    """Look at every body, as an application does; returns how many there were."""
    return sum(1 for body in batch.bodies if body)


def receiving(ready: Callable[[], float], place: Place, load: Load) -> Span:
    """One process's share: bulk reads and acks until nothing comes any more."""
    with place.open() as queue, queue.consumer() as consumer:
        began = ended = ready()
        count = 0
        for batch in consumer.batches(load.batch, wait=PATIENCE):
            count += read_bodies(batch)
            batch.ack()
            ended = time.monotonic()
        return Span(began, ended, count)


def receive_into(place: Place, load: Load) -> Sample:
    """Messages per second that the load's processes receive and ack together."""
    spans = run_together([Job(receiving, (place, load))] * load.processes)
    check_all_received(spans, load.messages)
    return Sample(rate(spans))


def check_all_received(spans: Sequence[Span], sent: int) -> None:
    """Raise BenchmarkFailed unless what was received is what was sent."""
    received = sum(span.messages for span in spans)
    if received != sent:
        raise BenchmarkFailed(f"{sent} messages were sent and {received} received")
