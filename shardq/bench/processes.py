"""Real processes that start working at the same moment."""

from __future__ import annotations

import multiprocessing
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from typing import Any

import msgspec

from shardq.bench.failure import BenchmarkFailed

__all__ = ["Job", "Span", "rate", "run_alone", "run_together"]

START_SECONDS = 120.0


class Job(msgspec.Struct, frozen=True):
    """Work for one process: ``work(ready, *arguments)`` prepares, calls ``ready()`` and gives what it measured.

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
    """What the work gives in a process of its own."""
    return run_together([Job(work, arguments)])[0]


def run_together(jobs: Sequence[Job]) -> list[Any]:
    """Run each job in a new process; what they gave, in order. Raises BenchmarkFailed."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(len(jobs))
    receivers, children = [], []
    try:
        for job in jobs:
            receiver, sender = context.Pipe(duplex=False)
            child = context.Process(target=_run, args=(sender, barrier, job), daemon=True)
            child.start()
            sender.close()
            receivers.append(receiver)
            children.append(child)
        return _checked([_answer(receiver) for receiver in receivers])
    finally:
        for child in children:
            child.join(timeout=5)
            if child.is_alive():
                child.terminate()


def _answer(receiver: Connection) -> tuple[Any, str]:
    try:
        value, trouble = receiver.recv()
    except EOFError:
        return None, "it ended without an answer: was it killed?"
    return value, trouble


def _checked(answers: Sequence[tuple[Any, str]]) -> list[Any]:
    """The values; raises for a process that failed by itself, else for one that waited in vain for another."""
    troubles = sorted((trouble for _, trouble in answers if trouble), key=_is_consequence)
    if troubles:
        raise BenchmarkFailed(f"a process of the benchmark failed: {troubles[0]}")
    return [value for value, _ in answers]


def _is_consequence(trouble: str) -> bool:
    return "BrokenBarrierError" in trouble


def _run(sender: Connection, barrier: Barrier, job: Job) -> None:
    def ready() -> float:
        barrier.wait(START_SECONDS)
        return time.monotonic()

    try:
        answer = (job.work(ready, *job.arguments), "")
    except BaseException:
        barrier.abort()
        answer = (None, traceback.format_exc())
    with suppress(BrokenPipeError):
        sender.send(answer)
