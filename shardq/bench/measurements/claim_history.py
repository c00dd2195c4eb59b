"""The time of a claim, depending on how much was consumed before."""

from __future__ import annotations

from collections.abc import Callable

import shardq
from shardq.bench.claiming import fill, time_claims
from shardq.bench.load import Load
from shardq.bench.processes import run_alone
from shardq.bench.result import Sample
from shardq.bench.stage import Place, Stage

__all__ = ["claim_history"]

HISTORY_SECONDS = 3_600.0
DRAIN_BATCH = 1_000


def claim_history(stage: Stage, load: Load) -> Sample:
    """Milliseconds, the median of many claims after ``consumed`` messages; with ``history`` these are kept."""
    with stage.queue(history_retention=HISTORY_SECONDS if load.history else 0.0) as place:
        return Sample(run_alone(_measure, place, load))


def _measure(ready: Callable[[], float], place: Place, load: Load) -> float:
    with place.open() as queue:
        ready()
        fill(queue, load.consumed, load)
        _drain(queue)
        fill(queue, load.backlog, load)
        return time_claims(queue, load)


def _drain(queue: shardq.Queue) -> None:
    with queue.consumer() as consumer:
        for batch in consumer.batches(DRAIN_BATCH, wait=0):
            batch.ack()
