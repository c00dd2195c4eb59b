"""From send to receive, within one process."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from shardq.bench.load import Load
from shardq.bench.percentiles import latencies
from shardq.bench.processes import run_alone
from shardq.bench.result import Sample
from shardq.bench.stage import Place, Stage
from shardq.bench.stamps import collect, send_now_and_then

__all__ = ["latency_process"]

LEAST_GAP, LONGEST_GAP = 0.005, 0.02  # seconds between two messages


def latency_process(stage: Stage, load: Load) -> Sample:
    """Milliseconds from the call of ``send`` to the return of ``receive`` in another thread."""
    with stage.queue() as place:
        return latencies(run_alone(_both, place, load))


def _both(ready: Callable[[], float], place: Place, load: Load) -> list[float]:
    with place.open() as queue, ThreadPoolExecutor(1) as thread:
        ready()
        receiver = thread.submit(collect, queue, load.messages)
        send_now_and_then(queue, load, LEAST_GAP, LONGEST_GAP)
        return receiver.result()
