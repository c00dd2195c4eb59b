"""Calls of Django's tasks as tasks of shardq carry them, and what is kept of each attempt."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

import msgspec
from django.utils.module_loading import import_string

from shardq.base.outgoing_message import DEFAULT_PRIORITY
from shardq.tasks.errors import LONGEST_TRACEBACK
from shardq.worker.policy import short_trace, trace_of

__all__ = ["Attempts", "DjangoCall", "shardq_priority"]

try:
    from django.tasks import task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django.tasks.exceptions import TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
    from django.utils.json import normalize_json
except ImportError:  # Django 5.2
    from django_tasks import task_backends
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.signals import task_enqueued, task_finished, task_started
    from django_tasks.utils import normalize_json

__all__ = [
    "BaseTaskBackend",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultStatus",
    "normalize_json",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
]


_MOST_ERRORS = 10


class DjangoCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of one of Django's tasks, as it was enqueued."""

    path: str  # of the function
    args: list[Any]
    kwargs: dict[str, Any]
    backend: str
    queue_name: str
    priority: int
    run_after: datetime | None
    enqueued_at: datetime

    @classmethod
    def of(cls, result: TaskResult) -> DjangoCall:
        """Return the call of a result that was not sent yet."""
        task = result.task
        return cls(
            path=task.module_path,
            args=result.args,
            kwargs=result.kwargs,
            backend=result.backend,
            queue_name=task.queue_name,
            priority=task.priority,
            run_after=task.run_after,
            enqueued_at=result.enqueued_at,
        )

    @property
    def task(self) -> Task:
        """The task, which its module defines. Raises ImportError when it does not."""
        found: Any = import_string(self.path)
        if not isinstance(found, Task):
            raise ImportError(f"{self.path} is no task: define it with @task")  # noqa: TRY004 - as of one missing
        return found.using(
            priority=self.priority,
            queue_name=self.queue_name,
            run_after=self.run_after,
            backend=self.backend,
        )


class Failed(msgspec.Struct, frozen=True):
    """The error of an attempt."""

    path: str  # of its class
    traceback: str

    @classmethod
    def of(cls, error: BaseException) -> Failed:
        """Return what is kept of an error. Its traceback begins with the function of the task."""
        kind, raised = type(error), trace_of(error)
        trace = short_trace(error, raised)[-LONGEST_TRACEBACK:]
        return cls(f"{kind.__module__}.{kind.__qualname__}", trace)


class Attempts(msgspec.Struct, frozen=True, kw_only=True):
    """A call, and what has become of it so far."""

    call: DjangoCall
    started_at: datetime | None = None
    last_attempted_at: datetime | None = None
    finished_at: datetime | None = None
    worker_ids: list[str] = []
    errors: list[Failed] = []
    value: Any = None

    def begun(self, worker: str, now: datetime) -> Attempts:
        """Return it with another attempt, which begins now."""
        return msgspec.structs.replace(
            self,
            started_at=self.started_at or now,
            last_attempted_at=now,
            finished_at=None,
            worker_ids=[*self.worker_ids, worker],
        )

    def failed(self, error: BaseException, now: datetime) -> Attempts:
        """Return it with the error of the last attempt."""
        errors = [*self.errors, Failed.of(error)][-_MOST_ERRORS:]
        return msgspec.structs.replace(self, finished_at=now, errors=errors)

    def worked(self, value: Any, now: datetime) -> Attempts:
        """Return it with the value that the last attempt has returned."""
        return msgspec.structs.replace(self, finished_at=now, value=value)

    def result(self, identity: str, status: TaskResultStatus) -> TaskResult:
        """Return it as Django shows it. Raises ImportError when the function is not there any more."""
        ended = status in (TaskResultStatus.SUCCESSFUL, TaskResultStatus.FAILED)
        found = TaskResult(
            task=self.call.task,
            id=identity,
            status=status,
            enqueued_at=self.call.enqueued_at,
            started_at=self.started_at,
            finished_at=self.finished_at if ended else None,
            last_attempted_at=self.last_attempted_at,
            args=self.call.args,
            kwargs=self.call.kwargs,
            backend=self.call.backend,
            errors=[
                TaskError(exception_class_path=each.path, traceback=each.traceback) for each in self.errors
            ],
            worker_ids=list(self.worker_ids),
        )
        object.__setattr__(found, "_return_value", self.value)  # which has no argument
        return found


# Describes the structs before threads convert to them: see tests/packaging/test_decoders.py.
msgspec.json.Decoder(Attempts)


def shardq_priority(priority: int) -> int:
    """Return the priority of a message, 0 (first) to 9, for one of Django's, 100 (first) to -100; 5 for 0.

    >>> [shardq_priority(each) for each in (100, 1, 0, -1, -100)]
    [0, 4, 5, 6, 9]
    """
    if priority > 0:
        return DEFAULT_PRIORITY - math.ceil(priority / 20)
    return DEFAULT_PRIORITY + math.ceil(-priority / 25)
