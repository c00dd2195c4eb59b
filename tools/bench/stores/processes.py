"""Measurements in processes of their own, which start working at the same moment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from shardq.errors import ShardqError
from shardq.worker.child_processes import ChildProcesses, Parent, ProcessFailed

__all__ = ["BenchmarkFailed", "Job", "Ready", "Span", "rate", "run_alone", "run_together"]

Ready = Callable[[], float]


class BenchmarkFailed(ShardqError):
    """Raised when a measurement does not run to its end, or when not everything that was sent is received."""


class Job(msgspec.Struct, frozen=True):
    """Work for one process: ``work(ready, *arguments)`` prepares, calls ``ready()`` and returns what it measured.

    ``ready`` returns when all processes have called it. The function is found by its name in the new process.
    """

    work: Callable[..., Any]
    arguments: tuple[Any, ...] = ()


class Span(msgspec.Struct, frozen=True):
    """When a process worked, in seconds of the clock that all processes share, and on how many messages."""

    began: float
    ended: float
    messages: int


def rate(spans: Sequence[Span]) -> float:
    """Messages per second, from the first start to the last end."""
    seconds = max(span.ended for span in spans) - min(span.began for span in spans)
    return sum(span.messages for span in spans) / max(seconds, 1e-9)


def run_alone(work: Callable[..., Any], *arguments: Any) -> Any:
    """What the work returns in a process of its own."""
    return run_together([Job(work, arguments)])[0]


def run_together(jobs: Sequence[Job]) -> list[Any]:
    """Run each job in a new process; what they returned, in order. Raises BenchmarkFailed."""
    try:
        with ChildProcesses() as processes:
            for number, job in enumerate(jobs, 1):
                processes.start(f"process {number}", _run, job)
            return processes.results()
    except ProcessFailed as error:
        raise BenchmarkFailed(f"a process of the benchmark failed: {error.trace or error}") from error


def _run(parent: Parent, job: Job) -> Any:
    return job.work(parent.ready, *job.arguments)
