"""From send to receive, from one process to another."""

from __future__ import annotations

from collections.abc import Callable

from shardq.bench.load import Load
from shardq.bench.percentiles import latencies
from shardq.bench.processes import Job, run_together
from shardq.bench.result import Sample
from shardq.bench.stage import Place, Stage
from shardq.bench.stamps import collecting, send_now_and_then

__all__ = ["latency_processes"]

LEAST_GAP, LONGEST_GAP = 0.02, 0.12  # seconds between two messages


def latency_processes(stage: Stage, load: Load) -> Sample:
    """Milliseconds from the call of ``send`` to the return of ``receive`` in another process."""
    with stage.queue() as place:
        jobs = [Job(_send, (place, load)), Job(collecting, (place, load.messages))]
        return latencies(run_together(jobs)[1])


def _send(ready: Callable[[], float], place: Place, load: Load) -> None:
    with place.open() as queue:
        ready()
        send_now_and_then(queue, load, LEAST_GAP, LONGEST_GAP)
