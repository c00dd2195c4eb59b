"""A client that is a pool of worker processes, those processes, and who sends to them."""

from __future__ import annotations

import os
import random
import signal
import time
from functools import cached_property
from pathlib import Path
from typing import Any

import shardq
from shardq.worker import WorkerPool

from .assignment import Assignment
from .dial import Dial, true_monotonic_ns
from .history import Event, Log, Phase
from .pooled import HANDLER_SECONDS, is_poison
from .producing import Producing
from .receiving import Collecting, delivery_of
from .role import Role

__all__ = ["Offering", "Pooling", "WritingOff"]

PROCESSES, BATCH = 2, 20
RESTARTS = 1_000_000  # poison may come again and again
SLOW = 0.1  # of the batches take up to a second


class Offering(Producing):
    """Sends to the queue of the pool."""

    verb = "offer"


class WritingOff(Collecting):
    """Drains the dead letters of the pool."""

    verb = "write-off"


class Pooling(Role):
    """Runs the pool, which receives SIGTERM itself. One that a full disk has ended is started again."""

    def run(self) -> None:
        self.record.invoke("pool")
        self.patiently(self._work)

    def _work(self) -> None:
        told = self.assignment
        pool = WorkerPool(
            told.url,
            told.queue,
            Handling(told),
            processes=PROCESSES,
            handler_timeout=HANDLER_SECONDS,
            max_restarts=RESTARTS,
            batch=BATCH,
            by_batch=True,
        )
        try:
            pool.run()
        except shardq.ShardqError:
            if not pool.report.stops:
                raise


class Handling:
    """The handler of a process: writes down what the process holds, and dies of poison."""

    def __init__(self, told: Assignment) -> None:
        self._told = told

    def __call__(self, batch: shardq.Batch) -> None:
        held = tuple(delivery_of(message) for message in batch)
        self._write("hold", Phase.INVOKE, deliveries=held)
        if not self._dial.hurry:
            slow = random.random() < SLOW
            time.sleep(random.random() * (1.0 if slow else 0.05))
        if any(is_poison(each.body) for each in held):
            os.kill(os.getpid(), signal.SIGKILL)
        self._write("worked", Phase.OK, bodies=tuple(each.body for each in held))

    def _write(self, verb: str, phase: Phase, **more: Any) -> None:
        told, at = self._told, true_monotonic_ns()
        self._log.write(Event(at=at, actor=told.name, number=os.getpid(), verb=verb, phase=phase, **more))

    @cached_property
    def _log(self) -> Log:
        return Log(Path(self._told.log))

    @cached_property
    def _dial(self) -> Dial:
        return Dial(Path(self._told.dial))
