"""The backend of Django's tasks that keeps them in queues of shardq."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import Any

import msgspec
from django import conf
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import close_old_connections
from django.utils import timezone

from shardq.base.receipt import MessageId
from shardq.codec import MSGPACK
from shardq.django.api import (
    BaseTaskBackend,
    Task,
    TaskContext,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    normalize_json,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from shardq.django.calls import Attempts, DjangoCall, shardq_priority
from shardq.errors import InvalidReceipt, QueueNotFound
from shardq.outcome import Outcome
from shardq.tasks import CurrentTask, Middleware, ResultMissing, ResultRejected, Tasks, current_task
from shardq.tasks import Result as ShardqResult
from shardq.tasks import Task as ShardqTask

__all__ = ["ShardqBackend", "backend_named", "run"]

KEEP_SECONDS = 86_400.0
_OPTIONS = {"url", "prefix", "retry", "timeout", "keep_result"}
_LONGEST_WORKER_ID = 64


class ShardqBackend(BaseTaskBackend):
    """Keeps Django's tasks in queues of shardq. Workers run them: ``manage.py shardq_work``.

    In the settings: ``TASKS = {"default": {"BACKEND": "shardq.django.backend.ShardqBackend", "OPTIONS": {...}}}``. The
    store is the option ``url``, or else ``SHARDQ_URL`` of the settings or of the environment. The names of the queues
    begin with ``prefix``. A task has ``retry`` attempts, 1 without it, of ``timeout`` seconds each. Its result is kept
    for ``keep_result`` seconds, a day without it. With 0 there are no results.

    Tasks may be async, may have a ``run_after``, and any priority: the 201 of Django become 10. A task whose last
    attempt failed is a dead letter too.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        if unknown := self.options.keys() - _OPTIONS:
            raise ImproperlyConfigured(
                f"TASKS[{alias!r}] has the option {min(unknown)!r}: use {', '.join(sorted(_OPTIONS))}"
            )
        keep = float(self.options.get("keep_result", KEEP_SECONDS))
        self.supports_get_result = keep > 0
        self.attempts: int = self.options.get("retry", 1)
        self.url = self.options.get("url") or getattr(conf.settings, "SHARDQ_URL", None)
        """Of the store; None: that of the environment."""
        self.app = Tasks(self.url, middleware=[_Connections()])
        """The tasks of shardq that run Django's: one for each queue."""
        self._task_options: dict[str, Any] = {
            "retry": self.attempts,
            "timeout": self.options.get("timeout"),
            "keep_result": keep,
        }
        self._prefix: str = self.options.get("prefix", "")
        for name in sorted(self.queues):
            self.runner(name)

    def runner(self, queue_name: str) -> ShardqTask[Any, Any, Any]:
        """Return the task of shardq that runs Django's tasks of a queue."""
        name = f"django.{queue_name}"
        found: ShardqTask[Any, Any, Any] | None = self.app.tasks.get(name)
        if found is None:
            make: Any = self.app.task
            found = make(name=name, queue=self._prefix + queue_name, **self._task_options)(run)
        return found

    def enqueue(self, task: Task, args: Any, kwargs: Any) -> TaskResult:
        """Send a task to its queue; returns its result, which has the id. Raises what sends of shardq raise.

        Arguments have to be values of JSON. The task is sent at once, also within a transaction of the database: use
        ``transaction.on_commit``.
        """
        self.validate_task(task)
        result = TaskResult(
            task=task,
            id="",
            status=TaskResultStatus.READY,
            enqueued_at=timezone.now(),
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            args=args,
            kwargs=kwargs,
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        run_after = task.run_after
        if run_after is not None and timezone.is_naive(run_after):  # without USE_TZ
            run_after = timezone.make_aware(run_after)
        runner = self.runner(task.queue_name).options(priority=shardq_priority(task.priority), due=run_after)
        sent = runner.send(DjangoCall.of(result))
        object.__setattr__(result, "id", sent.id)  # as Django's own backends set what comes later
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> TaskResult:
        """Return the result of a task by its id. Raises TaskResultDoesNotExist, also after ``keep_result``."""
        if not self.supports_get_result:
            return super().get_result(result_id)
        with suppress(InvalidReceipt, ResultMissing, QueueNotFound):
            queue = MessageId.parse(result_id).shard.queue
            known = self.runner(queue.removeprefix(self._prefix)).result(result_id)
            for _ in range(2):  # it may continue while it is read
                state = known.state
                found = self._attempts(queue, known, state)
                if found is not None:
                    return found.result(result_id, _STATUS[state])
        raise TaskResultDoesNotExist(result_id)

    def check(self, **_: Any) -> list[checks.CheckMessage]:
        """Return an error of ``manage.py check`` where no store is named."""
        if self.url or os.environ.get("SHARDQ_URL"):
            return []
        hint = f"Set SHARDQ_URL, or the option 'url' of TASKS[{self.alias!r}], such as 'sqlite:///queue.db'."
        return [checks.Error("The tasks have no store.", hint=hint, id="shardq.E001")]

    def close(self) -> None:
        """Close the connection to the store. The next task opens it again."""
        self.app.close()

    def _attempts(self, queue: str, known: ShardqResult[Any], state: str) -> Attempts | None:
        """Return what is known of a task in a state; None if nothing, as when it has just left that state."""
        if state == "missing":
            return None
        if state == "done":
            done: Attempts = known.get(timeout=0)
            return done
        if (progress := known.progress()) is not None:
            return msgspec.convert(progress, Attempts)
        message = self.app.binding.client.queue(queue).get(known.id, codec=MSGPACK)
        return None if message is None else Attempts(call=msgspec.convert(message.body["call"], DjangoCall))


def backend_named(alias: str) -> ShardqBackend:
    """Return a backend of the settings. Raises ImproperlyConfigured when there is none, or it is none of shardq's."""
    found = task_backends[alias]
    if not isinstance(found, ShardqBackend):
        raise ImproperlyConfigured(
            f"TASKS[{alias!r}] has the backend {type(found).__name__}: give it BACKEND = "
            "'shardq.django.backend.ShardqBackend'"
        )
    return found


_STATUS = {
    "waiting": TaskResultStatus.READY,
    "running": TaskResultStatus.RUNNING,
    "done": TaskResultStatus.SUCCESSFUL,
    "failed": TaskResultStatus.FAILED,
    "cancelled": TaskResultStatus.FAILED,
}


class _Connections(Middleware):
    """Closes the connections of the database that are too old, as Django does around each request."""

    def before(self, task: CurrentTask) -> None:  # noqa: ARG002
        close_old_connections()

    def after(self, task: CurrentTask, value: object, error: BaseException | None) -> None:  # noqa: ARG002
        close_old_connections()


def run(call: DjangoCall) -> Attempts:
    """Run one of Django's tasks, and return what is kept of it. Raises what its function raises."""
    current, backend = current_task(), backend_named(call.backend)
    attempts = _before(backend, call, current).begun(_worker_id(), timezone.now())
    _keep(current, attempts)
    try:
        task = call.task
        result = attempts.result(current.id, TaskResultStatus.RUNNING)
        task_started.send(sender=type(backend), task_result=result)
        context = [TaskContext(task_result=result)] if task.takes_context else []
        value = normalize_json(task.call(*context, *call.args, **call.kwargs))
    except Outcome:  # such as shardq.Snooze: the task is tried again, or given up
        raise
    except Exception as error:
        attempts = attempts.failed(error, timezone.now())
        _keep(current, attempts)
        if current.deliveries >= backend.attempts:
            _tell_finished(backend, current, attempts, TaskResultStatus.FAILED)
        raise
    attempts = attempts.worked(value, timezone.now())
    _tell_finished(backend, current, attempts, TaskResultStatus.SUCCESSFUL)
    return attempts


def _before(backend: ShardqBackend, call: DjangoCall, current: CurrentTask) -> Attempts:
    """Return what is kept of the attempts before this one."""
    if current.deliveries > 1 and backend.supports_get_result:
        progress = backend.runner(call.queue_name).result(current.id).progress()
        if progress is not None:
            return msgspec.convert(progress, Attempts)
    return Attempts(call=call)


def _keep(current: CurrentTask, attempts: Attempts) -> None:
    with suppress(ResultRejected):  # it is too large: its state is known all the same
        current.progress(attempts, at_once=True)


def _tell_finished(
    backend: ShardqBackend, current: CurrentTask, attempts: Attempts, status: TaskResultStatus
) -> None:
    with suppress(ImportError):  # of the task itself: there is nothing to tell
        task_finished.send(type(backend), task_result=attempts.result(current.id, status))


def _worker_id() -> str:
    return f"{socket.gethostname()}-{os.getpid()}"[-_LONGEST_WORKER_ID:]
