"""Tasks of Spark that fail: the first attempt at each ends when it has stored some of its rows."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from pathlib import Path

from pyspark import TaskContext

from shardq.base.clock import SystemClock
from shardq.client import Client
from shardq.spark import connection
from shardq.storage.opening import open_store
from shardq.storage.requests import Append
from shardq.storage.store import Store
from shardq.storage.wrapped_store import WrappedStore

from .assignment import Assignment
from .away import Away
from .defects import with_defect
from .dial import Dial, true_monotonic_ns
from .history import Event, Log, Phase

__all__ = ["let_tasks_fail"]

MOST_REQUESTS = 3  # until an attempt fails


def let_tasks_fail(told: Assignment, dial: Dial) -> None:
    """Let the tasks of this process, and of those that it forks, use a store on which their first attempts fail."""

    def connect(url: str, *, retry_seconds: float) -> Client:
        store = with_defect(told.defect, open_store(url, SystemClock(), retry_seconds=retry_seconds))
        store = FailsFirstAttempts(Away(store, dial, told.queue), told)
        return Client(store, retry_seconds=retry_seconds)

    connection.connect = connect  # type: ignore[attr-defined, assignment]


class FailsFirstAttempts(WrappedStore):
    """Ends the first attempt at a task after some of its requests: by an error, or by the end of its process."""

    def __init__(self, inner: Store, told: Assignment) -> None:
        super().__init__(inner)
        self._told, self._log = told, Log(Path(told.log))
        self._requests: Counter[int] = Counter()  # by attempt

    def append(self, request: Append) -> None:
        super().append(request)
        task = TaskContext.get()
        if task is None or task.attemptNumber() or request.shard.queue != self._told.queue:
            return
        attempt = task.taskAttemptId()
        self._requests[attempt] += 1
        dice = random.Random(f"{self._told.seed} {task.stageId()} {task.partitionId()}")
        if self._requests[attempt] == dice.randint(1, MOST_REQUESTS):
            self._fail(by_kill=dice.random() < 0.5)

    def _fail(self, *, by_kill: bool) -> None:
        at, name = true_monotonic_ns(), self._told.name
        note = "killed" if by_kill else "raised"
        event = Event(at=at, actor=name, number=os.getpid(), verb="fail-task", phase=Phase.FAILED, note=note)
        self._log.write(event)
        if by_kill:
            os.kill(os.getpid(), signal.SIGKILL)
        raise RuntimeError("this attempt was meant to fail")
