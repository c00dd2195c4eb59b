"""Running the tasks of a unit: each is looked up, called, and its outcome noted."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import partial
from inspect import BoundArguments
from typing import Any

from shardq.client.outcome import LONGEST_DELAY, DeadLetter, Discard, Outcome, Retry, Snooze
from shardq.core.hooks import Hooks
from shardq.core.message import Message
from shardq.errors import MessageTooLarge, PartialSend, ShardqError
from shardq.tasks.advancing import UNSENDABLE, give_up, start_bucket, start_run, start_workflow
from shardq.tasks.calling import CurrentTask, Middleware, run_function
from shardq.tasks.entries import (
    APART,
    MAX_RESULT_BYTES,
    NAME,
    RUN,
    TIMEOUT,
    WORKFLOW,
    Entry,
    check_task_id,
    headers_of,
    is_step_message,
    kept_seconds,
    result_id,
    run_of,
)
from shardq.tasks.errors import (
    ArgumentsRejected,
    ResultMissing,
    ResultRejected,
    TaskCancelled,
    UnknownTask,
)
from shardq.tasks.in_flight import AGAIN_SECONDS, TaskUnit
from shardq.tasks.options import LONGEST_NAME, RetryPolicy
from shardq.tasks.registry import TaskDefinition
from shardq.tasks.signature import Signature
from shardq.tasks.steps import body_of
from shardq.tasks.task import store_replacement
from shardq.tasks.task_client import TaskClient
from shardq.tasks.workflow import Workflow
from shardq.worker.attempt import EachMessage, Ending
from shardq.worker.gate import Gate
from shardq.worker.loop import CoroutineLoop
from shardq.worker.observed import observed_handler
from shardq.worker.report import Tally

__all__ = ["Runner"]

STALE_SECONDS = 1.0  # a task that has waited for so long in the worker may have been cancelled since


class Runner:
    """Runs the tasks of units. Any number of threads may use it."""

    def __init__(
        self,
        tasks: Mapping[str, TaskDefinition],
        middleware: tuple[Middleware, ...],
        task_client: TaskClient,
        loop: CoroutineLoop,
        on_error: Callable[[Exception], None] = lambda _: None,
        *,
        hooks: Hooks | None,
        stopping: Callable[[], bool],
    ) -> None:
        self._tasks, self._middleware, self._loop, self._hooks = tasks, middleware, loop, hooks
        self._on_error, self._stopping = on_error, stopping
        self.begins: Callable[[Message], None] = lambda _: None  # called with each task when it begins
        self.ends: Callable[[Message], None] = lambda _: (
            None
        )  # and with one that ends before others of its unit
        self._task_client, self._log = task_client, task_client.results

    def read_entries(self, units: Sequence[TaskUnit]) -> None:
        """Read the entries of tasks that were received together. Tasks without one are read later."""
        ids = [result_id(each) for unit in units for each in unit.attempt.batch if _may_have_entries(each)]
        if not ids:
            return
        with suppress(ShardqError):
            known = self._log.outcomes(ids, working=True)
            for unit in units:
                unit.known = known

    def is_last(self, message: Message) -> bool:
        """Return True for a task at its last attempt, as far as can be known now: it has none if its worker dies."""
        with suppress(ShardqError):
            return message.deliveries >= self._attempts(message) or message.last_delivery
        return False

    def run(self, unit: TaskUnit, tally: Tally, gate: Gate) -> None:
        """Run its tasks, and note the outcome of each. Raises KeyboardInterrupt."""
        unit.attempt.called = self._called
        handle = observed_handler(self._hooks, partial(self._handled, unit))
        calls = EachMessage(handle, self._outcome)
        try:
            calls.run(unit.attempt, tally, gate)
        finally:  # those of a group that ended before one which could not begin are settled too
            endings = [self._of_last_attempt(each) for each in unit.attempt.endings]
            unit.attempt.endings = [_counted(unit, each) for each in endings]

    def _of_last_attempt(self, ending: Ending) -> Ending:
        """Return an ending, where a task asks for another attempt than those that it has: it has failed for good."""
        if isinstance(ending.outcome, Retry) and ending.message.deliveries >= self._attempts(ending.message):
            return Ending(ending.message, DeadLetter(), ending.reason)
        return ending

    def _task_of(self, message: Message) -> TaskDefinition | None:
        return self._tasks.get(str(headers_of(message).get(NAME)))

    def _attempts(self, message: Message) -> float:
        """Return how often a task is tried, as far as it says so."""
        task = self._task_of(message)
        attempts = None if task is None else task.settings.policy.attempts
        return math.inf if attempts is None else attempts

    def _handled(self, unit: TaskUnit, message: Message) -> object:
        self.begins(message)
        if self._hooks is not None:
            unit.contexts[message] = copy_context()
        try:
            return self._handle(unit, message)
        finally:
            if len(unit.attempt.batch) > 1:
                self.ends(message)

    def _handle(self, unit: TaskUnit, message: Message) -> object:
        """Run one task. Its value is kept; an outcome that it returns is handed on."""
        try:
            if (known := self._known(unit, message)) is not None:
                return self._as_decided(unit, message, known)
            if headers_of(message).get(NAME) == WORKFLOW or self._has_called(message):
                return self._start(unit, message, lambda: self._begin(message))
            value = self._spent(message) or self._run(unit, message)
            if isinstance(value, (Signature, Workflow)):
                return self._start(unit, message, lambda: self._call_instead(unit, message, value))
            if not isinstance(value, Outcome):
                unit.entries[message] = self._entry(message, value, unit.seconds[message])
                return None
        except _Unreachable:
            return Snooze(AGAIN_SECONDS)
        except BaseException as raised:
            error = unit.attempt.failure(raised)
            if isinstance(error, TaskCancelled):
                unit.entries[message] = Entry("cancelled")
            elif error is not None:
                unit.fail(message, error, self._call(message))
            raise
        unit.fail(message, value, self._call(message))
        return value

    def _has_called(self, message: Message) -> bool:
        """Return True for a task that has returned a workflow before: at an earlier delivery, or in an earlier run."""
        identity = result_id(message)
        with _unreachable_is_no_failure():
            if message.deliveries == 1 and not message.last_delivery and not run_of(identity):
                return False
            return self._task_client.plan(identity) is not None

    def _call_instead(self, unit: TaskUnit, message: Message, given: Signature[Any] | Workflow) -> None:
        identity = result_id(message)
        name, is_last = str(headers_of(message)[NAME]), message.last_delivery
        again = message.deliveries > 1 or is_last
        if not is_last:  # from here on a delay counts, so that the next delivery looks for the plan
            unit.planned.add(message)
        store_replacement(self._task_client, identity, name, given, kept_seconds(message), again=again)
        start_bucket(self._task_client, identity, b"")

    def _call(self, message: Message) -> str:
        """Return the task and its arguments in short; its name alone where it is not known, or has a large body."""
        task = self._task_of(message)
        if task is None or message.large is not None:
            return _name(message)
        return task.arguments.summary(message.raw)

    def _called(self, message: Message) -> str:
        if headers_of(message).get(NAME) == WORKFLOW:
            return f"workflow {result_id(message)}"
        return f"task {self._call(message)}, {result_id(message)},"

    def _start(self, unit: TaskUnit, message: Message, begin: Callable[[], None]) -> object:
        """Begin a workflow, a bucket of one, or the result of a task. An unreachable store is not a failure of it."""
        with _unreachable_is_no_failure():
            try:
                begin()
            except ShardqError as error:
                cause = error.__cause__ if isinstance(error, PartialSend) else error
                if not isinstance(cause, UNSENDABLE):
                    raise
                unit.fail(message, cause, "")
                if headers_of(message).get(NAME) == WORKFLOW and not is_step_message(message):
                    give_up(self._task_client, str(headers_of(message).get(RUN, message.id)), cause)
                return DeadLetter(str(cause))
        unit.begun.add(message)
        return None

    def _begin(self, message: Message) -> None:
        if headers_of(message).get(NAME) != WORKFLOW:  # a task that has returned one before
            start_bucket(self._task_client, result_id(message), b"")
        elif is_step_message(message):
            start_bucket(
                self._task_client, result_id(message), None if APART in headers_of(message) else message.raw
            )
        elif RUN in headers_of(message):
            check_task_id(run := str(headers_of(message)[RUN]))
            start_run(self._task_client, run)
        else:
            start_workflow(self._task_client, message)

    def _run(self, unit: TaskUnit, message: Message) -> Any:
        task = self._task(message)
        given = self._arguments(task, message)
        current = CurrentTask(
            task.name,
            result_id(message),
            message.deliveries,
            kept_seconds(message),
            self._log,
            self._stopping,
        )
        began = time.monotonic()
        try:
            return run_function(
                task.function,
                given,
                current,
                loop=self._loop,
                middleware=self._middleware,
                timeout=_timeout(message),
            )
        finally:
            unit.seconds[message] = time.monotonic() - began

    def _task(self, message: Message) -> TaskDefinition:
        name = message.headers.get(NAME)
        task = self._tasks.get(name) if isinstance(name, str) else None
        if task is None:
            then = "retry its workflow" if is_step_message(message) else "redrive"
            raise UnknownTask(
                f"this worker has no task {name!r:.{LONGEST_NAME}}: load the module that defines it, or give a "
                f"task its old name with @tasks.task(name=...), then {then}"
            )
        return task

    def _arguments(self, task: TaskDefinition, message: Message) -> BoundArguments:
        if APART not in headers_of(message):
            return task.arguments.decode(message.raw)
        try:
            with _unreachable_is_no_failure():
                body = body_of(self._task_client, result_id(message), message.raw)
        except (ResultMissing, MessageTooLarge) as error:
            raise ArgumentsRejected(
                f"what step {result_id(message)} takes cannot be read: {error}"
            ) from error
        return task.arguments.decode(body)

    def _entry(self, message: Message, value: object, seconds: float) -> Entry:
        if not kept_seconds(message):
            return Entry("done")
        body = self._task(message).arguments.encode_result(value)
        if len(body) > MAX_RESULT_BYTES:
            raise ResultRejected(
                f"the result of task {self._task(message).name!r} has {len(body):,} bytes, and may have "
                f"{MAX_RESULT_BYTES:,}: store it elsewhere and return where it is, or set keep_result=0"
            )
        return Entry("done", body, seconds=seconds)

    def _known(self, unit: TaskUnit, message: Message) -> Entry | None:
        """Return the decision about a task that an earlier worker ran, or that was cancelled meanwhile."""
        stale = time.monotonic() - unit.received_at > STALE_SECONDS
        if not (kept_seconds(message) if stale else _may_have_entries(message)):
            return None
        if stale or unit.known is None:
            ids = [result_id(each) for each in unit.attempt.batch]
            with _unreachable_is_no_failure():
                unit.known = self._log.outcomes(ids, working=True)
        return unit.known.get(result_id(message)) if unit.known else None

    def _spent(self, message: Message) -> DeadLetter | None:
        """Return the outcome of a task that was tried as often as it may be, each time by a worker that died of it."""
        if message.deliveries == 1 or message.deliveries <= (attempts := self._attempts(message)):
            return None
        return DeadLetter(
            f"delivered {attempts} times, and the last worker died or lost its lease: retry={attempts}"
        )

    def _as_decided(self, unit: TaskUnit, message: Message, entry: Entry) -> object:
        unit.entries[message] = entry
        if entry.state == "failed":
            return DeadLetter(str(entry.failure))
        return None

    def _outcome(self, message: Message, error: Exception) -> Outcome:
        """Return the outcome of a task that raised."""
        if isinstance(error, TaskCancelled):
            return Discard("cancelled")
        self._on_error(error)
        task = self._task_of(message)
        policy = RetryPolicy() if task is None else task.settings.policy
        return policy.outcome(error, message.deliveries)


class _Unreachable(Exception):
    """The store was away before a task could begin. That is not a failure of the task, and costs no delivery."""


@contextmanager
def _unreachable_is_no_failure() -> Iterator[None]:
    try:
        yield
    except ShardqError as error:
        if error.retryable:
            raise _Unreachable from error
        raise


def _counted(unit: TaskUnit, ending: Ending) -> Ending:
    """Return an ending. Where a plan may stand, a delivery that is put off counts, so the next one looks for the plan.

    With its last delivery it would be given up. There a plan is looked for at the first delivery, too.
    """
    if ending.message not in unit.planned or not isinstance(ending.outcome, Snooze):
        return ending
    return Ending(ending.message, Retry(ending.outcome.seconds), ending.reason)


def _may_have_entries(message: Message) -> bool:
    """Return True when something may stand of a task that has just been received."""
    return (is_step_message(message) or message.deliveries > 1) and kept_seconds(message) > 0


def _name(message: Message) -> str:
    """Return the name of a task for reports: others may have written a megabyte into its header."""
    return str(headers_of(message).get(NAME))[:LONGEST_NAME]


def _timeout(message: Message) -> float | None:
    """Return the longest time of one attempt. None, too, where others wrote something else into its header."""
    timeout = headers_of(message).get(TIMEOUT)
    return timeout if isinstance(timeout, float) and 0 < timeout <= LONGEST_DELAY else None
