"""The memory of a consumer that works for long."""

from __future__ import annotations

import time
from collections.abc import Callable

from shardq.bench.accounting import resident_bytes
from shardq.bench.load import Load, bodies
from shardq.bench.processes import run_alone
from shardq.bench.receiving import read_bodies
from shardq.bench.result import Figure, Sample
from shardq.bench.sending import send_bulk
from shardq.bench.stage import Place, Stage

__all__ = ["memory"]

WARM_UP_MESSAGES = 100_000  # or a quarter of all, if that is less: caches are full then
LOOK_SECONDS = 0.02
MEGABYTE = 1_000_000


def memory(stage: Stage, load: Load) -> Sample:
    """The most resident memory, as a multiple of that after warm-up.

    The points are messages and megabytes.
    """
    with stage.queue() as place:
        with place.open() as queue:
            send_bulk(queue, bodies(load.messages, load.body_bytes), load)
        points = run_alone(_consume, place, load)
    warm = min(WARM_UP_MESSAGES, load.messages / 4)
    after = [size for count, size in points if count >= warm]
    start = after[0]
    figures = (
        Figure("start MB", start),
        Figure("end MB", after[-1]),
        Figure("most MB", max(after)),
        Figure("end / start", after[-1] / start),
    )
    return Sample(max(after) / start, figures, tuple(points))


def _consume(ready: Callable[[], float], place: Place, load: Load) -> list[tuple[float, float]]:
    points: list[tuple[float, float]] = []
    with place.open() as queue, queue.consumer() as consumer:
        looked = ready()
        count = 0
        for batch in consumer.batches(load.batch, wait=0):
            count += read_bodies(batch)
            batch.ack()
            if time.monotonic() - looked > LOOK_SECONDS or count >= load.messages:
                looked = time.monotonic()
                points.append((float(count), resident_bytes() / MEGABYTE))
    return points
