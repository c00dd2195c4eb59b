"""The time of a claim, depending on how many messages wait."""

from __future__ import annotations

from collections.abc import Callable

from shardq.bench.claiming import fill, time_claims
from shardq.bench.load import Load
from shardq.bench.processes import run_alone
from shardq.bench.result import Sample
from shardq.bench.stage import Place, Stage

__all__ = ["claim_backlog"]


def claim_backlog(stage: Stage, load: Load) -> Sample:
    """Milliseconds, the median of many claims of ``batch`` messages while ``backlog`` messages wait."""
    with stage.queue() as place:
        return Sample(run_alone(_measure, place, load))


def _measure(ready: Callable[[], float], place: Place, load: Load) -> float:
    with place.open() as queue:
        ready()
        fill(queue, load.backlog, load)
        return time_claims(queue, load)
