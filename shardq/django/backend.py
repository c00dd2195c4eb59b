"""The backend of Django's tasks that keeps them in queues of shardq."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, cast

import msgspec
from asgiref.sync import async_to_sync
from django import conf
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import close_old_connections
from django.utils import timezone

from shardq.base.receipt import MessageId
from shardq.client.outcome import Outcome, Retry, Snooze
from shardq.django.calls import (
    Attempts,
    BaseTaskBackend,
    DjangoCall,
    Task,
    TaskContext,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    normalize_json,
    shardq_priority,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from shardq.errors import InvalidMessage, InvalidReceipt, InvalidSetting, QueueNotFound, ShardqError
from shardq.storage.per_process import forks
from shardq.tasks import (
    CurrentTask,
    Middleware,
    ResultMissing,
    ResultRejected,
    TaskCancelled,
    TaskOptions,
    Tasks,
    current_task,
)
from shardq.tasks import Result as ShardqResult
from shardq.tasks import Task as ShardqTask
from shardq.tasks.threads import in_time, interrupted_after
from shardq.worker.policy import as_failure

__all__ = ["ShardqBackend", "backend_named", "run"]

KEEP_SECONDS = 86_400.0
_OPTIONS = {"url", "prefix", "retry", "timeout", "keep_result"}
_LONGEST_WORKER_ID = 64
_NO_RESULT = (
    InvalidMessage,
    InvalidReceipt,
    QueueNotFound,
    ResultMissing,
    ResultRejected,
    msgspec.ValidationError,
)
"""Errors of reading a result by an id under which there is none, or something else."""


class ShardqBackend(BaseTaskBackend):
    """Keeps Django's tasks in queues of shardq. Workers run them: ``manage.py shardq_work``.

    In the settings: ``TASKS = {"default": {"BACKEND": "shardq.django.backend.ShardqBackend", "OPTIONS": {...}}}``. The
    store is the option ``url``, or else ``SHARDQ_URL`` of the settings or of the environment. The names of the queues
    begin with ``prefix``. A task has ``retry`` attempts, 1 without it, of ``timeout`` seconds each; ``retry`` may be a
    :class:`shardq.tasks.RetryPolicy`. Its result is kept for ``keep_result`` seconds, a day without it. With 0 there
    are no results.

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
        try:
            self.task_options = TaskOptions(
                retry=self.options.get("retry", 1),
                timeout=self.options.get("timeout"),
                keep_result=self.options.get("keep_result", KEEP_SECONDS),
            )
        except InvalidSetting as error:
            raise ImproperlyConfigured(f"TASKS[{alias!r}]: {error}") from error
        self.supports_get_result = self.task_options.keep_result > 0
        self.url = self.options.get("url") or getattr(conf.settings, "SHARDQ_URL", None)
        """Of the store; None: that of the environment."""
        self.app = Tasks(self.url, middleware=[_Connections()])
        """The tasks of shardq that run Django's: one for each queue."""
        self._any: ShardqTask[Any, Any, Any] = ShardqTask(self.app, run, self.task_options)
        """Reads the calls and results of all of them."""
        self._prefix: str = self.options.get("prefix", "")
        for name in sorted(self.queues):
            self.runner(name)

    def runner(self, queue_name: str) -> ShardqTask[Any, Any, Any]:
        """Return the task of shardq that runs Django's tasks of a queue."""
        name = f"django.{queue_name}"
        found: ShardqTask[Any, Any, Any] | None = self.app.tasks.get(name)
        if found is None:
            options = self.task_options
            made = self.app.task(
                name=name,
                queue=self._prefix + queue_name,
                retry=options.retry,  # the timeout is that of the function alone: see `run`
                keep_result=options.keep_result,
            )
            found = cast("ShardqTask[Any, Any, Any]", made(run))
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
        task_enqueued.send_robust(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> TaskResult:
        """Return the result of a task by its id. Raises TaskResultDoesNotExist, also after ``keep_result``."""
        if not self.supports_get_result:
            return super().get_result(result_id)
        with suppress(*_NO_RESULT):
            known = self._any.result(result_id)
            for _ in range(2):  # it may continue while it is read
                state = known.state
                found = self._attempts(known, state)
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

    def attempts_before(self, call: DjangoCall, current: CurrentTask) -> Attempts:
        """Return what is kept of the attempts at a call before the current one."""
        if current.deliveries > 1 and self.supports_get_result:
            progress = self._any.result(current.id).progress()
            if progress is not None:
                return msgspec.convert(progress, Attempts)
        return Attempts(call=call)

    def is_given_up(self, call: DjangoCall, error: Exception, deliveries: int) -> bool:
        """Return whether a call that has failed with this error is not tried again, as far as is known."""
        policy = self.task_options.policy
        outcome = error if isinstance(error, Outcome) else policy.outcome(error, deliveries)
        most = [policy.attempts]
        with suppress(ShardqError):
            most.append(
                self.app.task_client.client.queue(self._prefix + call.queue_name).settings.max_deliveries
            )
        return (
            isinstance(error, TaskCancelled)
            or not isinstance(outcome, Retry)
            or any(each is not None and deliveries >= each for each in most)
        )

    def _attempts(self, known: ShardqResult[Any], state: str) -> Attempts | None:
        """Return what is known of a task in a state; None if nothing, as when it has just left that state."""
        if state == "missing":
            return None
        if state == "done":
            done: Attempts = known.get(timeout=0)
            return done
        if (progress := known.progress()) is not None:
            return msgspec.convert(progress, Attempts)
        queue = MessageId.parse(known.id).shard.queue
        message = self.app.task_client.client.queue(queue).get(known.id)
        return None if message is None else Attempts(**self._any.arguments.decode(message.body).arguments)


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
    """Run one of Django's tasks, and return what is kept of it. Raises what its function raises.

    The timeout is that of the function alone, so that an attempt which takes too long is kept as any other that failed.
    """
    current, backend, here = current_task(), backend_named(call.backend), forks.count
    attempts = backend.attempts_before(call, current).begun(_worker_id(), timezone.now())
    _keep(current, attempts)
    try:
        task = call.task
        result = attempts.result(current.id, TaskResultStatus.RUNNING)
        task_started.send_robust(sender=type(backend), task_result=result)
        context = [TaskContext(task_result=result)] if task.takes_context else []
        value = normalize_json(
            _called(task, [*context, *call.args], call.kwargs, backend.task_options.timeout)
        )
    except Snooze:
        raise
    except BaseException as raised:
        error = as_failure(raised)
        if error is None or forks.count != here:  # Ctrl-C, or the end of a child that the function has forked
            raise
        attempts = attempts.failed(raised, timezone.now())
        _keep(current, attempts)
        if backend.is_given_up(call, error, current.deliveries):
            _send_finished_signal(backend, current, attempts, TaskResultStatus.FAILED)
        raise
    attempts = attempts.worked(value, timezone.now())
    _send_finished_signal(backend, current, attempts, TaskResultStatus.SUCCESSFUL)
    return attempts


def _called(task: Task, args: list[Any], kwargs: dict[str, Any], timeout: float | None) -> Any:
    """Call the function of a task; returns its value. Raises TaskTimeout, or its error."""

    async def awaited() -> Any:
        return await in_time(task.acall(*args, **kwargs), timeout)

    if iscoroutinefunction(task.func):
        return async_to_sync(awaited)()
    call = partial(task.func, *args, **kwargs)
    return call() if timeout is None else interrupted_after(timeout, call)


def _keep(current: CurrentTask, attempts: Attempts) -> None:
    with suppress(ResultRejected):  # it is too large: its state is known all the same
        current.progress(attempts, at_once=True)


def _send_finished_signal(
    backend: ShardqBackend, current: CurrentTask, attempts: Attempts, status: TaskResultStatus
) -> None:
    with suppress(ImportError):  # of the task itself: there is nothing to tell
        task_finished.send_robust(type(backend), task_result=attempts.result(current.id, status))


def _worker_id() -> str:
    return f"{socket.gethostname()}-{os.getpid()}"[-_LONGEST_WORKER_ID:]
