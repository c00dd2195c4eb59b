"""The measurements of what consumers use: memory in long work, processor time while they wait."""

from __future__ import annotations

import os
import time
from pathlib import Path

from shardq.core.settings import QueueSettings

from .load import Load, bodies
from .processes import Job, Ready, run_alone, run_together
from .result import Figure, Sample
from .stage import Place, Stage
from .throughput import in_bulk, read_bodies

__all__ = ["SETTLING_SECONDS", "idle", "idling", "memory", "memory_is_known"]

WARM_UP_MESSAGES = 100_000  # or a quarter of all, if that is less: caches are full then
LOOK_SECONDS = 0.02
MEGABYTE = 1_000_000
SETTLING_SECONDS = 2.0
_PAGES = Path("/proc/self/statm")  # the memory of this process, as the kernel accounts it


def memory_is_known() -> bool:
    """True where the system tells the memory of a process: on Linux."""
    return _PAGES.exists()


def memory(stage: Stage, load: Load) -> Sample:
    """The most resident memory of a consumer, as a multiple of that after warm-up.

    The points are messages and megabytes.
    """
    with stage.queue() as place:
        with place.open() as queue:
            in_bulk(queue, bodies(load.messages, load.body_bytes), load)
        points = run_alone(_consuming, place, load)
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


def idle(stage: Stage, load: Load) -> Sample:
    """Percent of one core that ``processes`` idle consumers use together, over ``seconds``."""
    with stage.queue(time_shards=QueueSettings().time_shards) as place:
        used = run_together([Job(idling, (place, load.seconds))] * load.processes)
    return Sample(100 * sum(used) / load.seconds)


def idling(ready: Ready, place: Place, seconds: float) -> float:
    """Seconds of a core that a consumer takes in that time, once it has settled; the work of one process."""
    with place.open() as queue, queue.consumer() as consumer:
        ready()
        consumer.receive(1, wait=min(seconds, SETTLING_SECONDS))
        before, began = time.process_time(), time.monotonic()
        consumer.receive(1, wait=seconds)
        return (time.process_time() - before) * seconds / (time.monotonic() - began)


def _consuming(ready: Ready, place: Place, load: Load) -> list[tuple[float, float]]:
    points: list[tuple[float, float]] = []
    with place.open() as queue, queue.consumer() as consumer:
        looked = ready()
        count = 0
        for batch in consumer.batches(load.batch, wait=0):
            count += read_bodies(batch)
            batch.ack()
            if time.monotonic() - looked > LOOK_SECONDS or count >= load.messages:
                looked = time.monotonic()
                points.append((float(count), _resident_bytes() / MEGABYTE))
    return points


def _resident_bytes() -> int:
    return int(_PAGES.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
