"""What waiting costs: consumers of an empty queue."""

from __future__ import annotations

import time
from collections.abc import Callable

from shardq.bench.load import Load
from shardq.bench.processes import Job, run_together
from shardq.bench.result import Sample
from shardq.bench.stage import Place, Stage
from shardq.settings import QueueSettings

__all__ = ["SETTLING_SECONDS", "idle", "idling"]

SETTLING_SECONDS = 2.0


def idle(stage: Stage, load: Load) -> Sample:
    """Percent of one core that ``processes`` idle consumers use together, over ``seconds``."""
    with stage.queue(time_shards=QueueSettings().time_shards) as place:
        used = run_together([Job(idling, (place, load.seconds))] * load.processes)
    return Sample(100 * sum(used) / load.seconds)


def idling(ready: Callable[[], float], place: Place, seconds: float) -> float:
    """Seconds of a core that a consumer takes in that time, once it has settled; the work of one process."""
    with place.open() as queue, queue.consumer() as consumer:
        ready()
        consumer.receive(1, wait=min(seconds, SETTLING_SECONDS))
        before, began = time.process_time(), time.monotonic()
        consumer.receive(1, wait=seconds)
        return (time.process_time() - before) * seconds / (time.monotonic() - began)
