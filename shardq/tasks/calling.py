"""Calling the function of a task, within its middleware and its time, and the current task meanwhile."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from inspect import BoundArguments
from typing import Any

import msgspec

from shardq.base.callables import check_runs
from shardq.base.log import Log
from shardq.base.texts import shown
from shardq.errors import InvalidSetting, ShardqError
from shardq.tasks.entries import MAX_ENTRY_BYTES
from shardq.tasks.errors import ResultRejected, ResultTimeout, TaskCancelled, WaitRejected
from shardq.tasks.result_backend import ResultBackend
from shardq.tasks.threads import OTHERS_CANCELLED, in_time, interrupted_after, run_coroutine
from shardq.worker.loop import CANCEL_CHECK_SECONDS, CoroutineLoop

__all__ = [
    "CurrentTask",
    "Middleware",
    "check_middleware",
    "check_wait",
    "current_task",
    "is_in_worker",
    "run_function",
]

_log = Log(__name__)
PROGRESS_SECONDS = 0.5  # between two notes of its progress


class CurrentTask:
    """The task that is running: its name, its id, and at which delivery it is. Given by :func:`current_task`.

    >>> import shardq.tasks
    >>> tasks = shardq.tasks.Tasks()
    >>> @tasks.task
    ... def count(to: int) -> str:
    ...     current_task().progress(f"0 of {to}")
    ...     return current_task().name
    >>> count.call(3)
    'count'
    """

    def __init__(
        self,
        name: str,
        identity: str,
        deliveries: int,
        keep: float,
        log: ResultBackend | None = None,
        stopping: Callable[[], bool] | None = None,
    ) -> None:
        self.name, self.id, self.deliveries = name, identity, deliveries
        self._keep, self._log = keep, log
        self._stopping = stopping  # whether its worker is stopping; None: no worker runs it
        self._cancelled = False
        self._cancel_checked_at = time.monotonic()
        self._progress_written_at = float("-inf")

    @property
    def cancelled(self) -> bool:
        """True when the task was cancelled. The store is asked once a second at most.

        While the store is unreachable the task continues as before. A task without a result (``keep_result=0``) cannot
        be cancelled once it runs.
        """
        if not self._cancelled and time.monotonic() - self._cancel_checked_at >= CANCEL_CHECK_SECONDS:
            self.refresh_cancelled()
        return self._cancelled

    def refresh_cancelled(self) -> bool:
        """Read the state as :meth:`read_cancelled` does; keep the known one while the store is unreachable."""
        try:
            return self.read_cancelled()
        except ShardqError as error:
            _log.debug("whether task %s was cancelled is not known: %s", self.id, error)
            return self._cancelled

    def read_cancelled(self) -> bool:
        """Ask the store at once whether the task was cancelled. Raises StoreUnavailable."""
        self._cancel_checked_at = time.monotonic()
        if self._log is not None and self._keep and not self._cancelled:
            entry = self._log.outcomes([self.id], working=True).get(self.id)
            self._cancelled = entry is not None and entry.state == "cancelled"
        return self._cancelled

    def check(self) -> None:
        """Raise TaskCancelled when the task was cancelled."""
        if self.cancelled:
            raise TaskCancelled(f"task {self.name!r}, {self.id}, was cancelled")

    def progress(self, value: Any, *, at_once: bool = False) -> None:
        """Note how far the task is: any value that msgspec can write. :meth:`Result.progress` shows the last one.

        It is written twice a second at most, unless ``at_once``. Earlier notes are left out, and so are those while
        the store is unreachable. Raises ResultRejected for a value that cannot be written, or is larger than a
        megabyte.
        """
        try:
            body = msgspec.msgpack.encode(value)
        except Exception as error:
            raise ResultRejected(
                f"progress {shown(value)} of task {self.name!r} cannot be stored: {error}; give plain values"
            ) from error
        if len(body) > MAX_ENTRY_BYTES:
            raise ResultRejected(
                f"progress of task {self.name!r} has {len(body):,} bytes, and may have {MAX_ENTRY_BYTES:,}: note less"
            )
        now = time.monotonic()
        if (
            self._log is None
            or not self._keep
            or not (at_once or now - self._progress_written_at >= PROGRESS_SECONDS)
        ):
            return
        self._progress_written_at = now
        try:
            self._log.write_progress(self.id, body, self._keep)
        except ShardqError as error:
            if not error.retryable:
                raise
            _log.warning("progress of task %s was not noted: %s", self.id, error)

    def within(self, outer: CurrentTask) -> None:
        """Run where another task runs, which has called this one."""
        if self._stopping is None:
            self._stopping = outer._stopping

    @property
    def is_in_worker(self) -> bool:
        """True when a worker runs it, or the task that has called it."""
        return self._stopping is not None

    def check_wait(self, what: str, *, bounded: bool) -> None:
        """Raise WaitRejected for a wait without a bound, and ResultTimeout when the worker is stopping."""
        if self._stopping is None:
            return
        if not bounded:
            raise WaitRejected(
                f"task {self.name!r} would wait for {what}, and its worker may have no thread to run that: return the "
                "call or workflow in place of its value, put both into a chain, or give a timeout, as in "
                "result.get(timeout=60), if other workers run it"
            )
        if self._stopping():
            raise ResultTimeout(
                f"{what} has not ended, and the worker of task {self.name!r} is stopping: ask again later"
            )


_current: ContextVar[CurrentTask] = ContextVar("shardq_current_task")


def current_task() -> CurrentTask:
    """Return the task that is running here. Raises InvalidSetting when none is."""
    try:
        return _current.get()
    except LookupError:
        raise InvalidSetting(
            "no task is running here: ask for the current task in the function of one, which a worker or "
            "`call` runs"
        ) from None


def check_wait(what: str, *, bounded: bool) -> None:
    """Raise what :meth:`CurrentTask.check_wait` does, in a task."""
    if (current := _current.get(None)) is not None:
        current.check_wait(what, bounded=bounded)


def is_in_worker() -> bool:
    """Return True in a task that a worker runs."""
    current = _current.get(None)
    return current is not None and current.is_in_worker


@contextmanager
def running(current: CurrentTask) -> Iterator[CurrentTask]:
    """Make this the current task within the block."""
    if (outer := _current.get(None)) is not None:
        current.within(outer)
    token = _current.set(current)
    try:
        yield current
    finally:
        _current.reset(token)


class Middleware:
    """Code that runs around every task of an app, in the thread of the worker that runs it. Override what you need.

    An error of ``before`` or ``around`` is a failure of the task. An error of ``after`` is logged.

    >>> class Timed(Middleware):
    ...     def around(self, task: CurrentTask, call: Callable[[], object]) -> object:
    ...         print("begins", task.name)
    ...         return call()
    >>> import shardq.tasks
    >>> tasks = shardq.tasks.Tasks(middleware=[Timed()])
    >>> @tasks.task
    ... def double(number: int) -> int:
    ...     return 2 * number
    >>> double.call(4)
    begins double
    8
    """

    def before(self, task: CurrentTask) -> None:
        """Do something before the task runs."""

    def after(self, task: CurrentTask, value: object, error: BaseException | None) -> None:
        """Act when it has ended, with its result or its error."""

    def around(self, task: CurrentTask, call: Callable[[], object]) -> object:  # noqa: ARG002
        """Run the task by ``call()``, and return its result. For an async function that is its result too."""
        return call()


def check_middleware(given: object) -> tuple[Middleware, ...]:
    """Return the middleware of an app.

    Raises InvalidSetting for an object that is none, or whose methods a call does not run.
    """
    if isinstance(given, Middleware) or not isinstance(given, Iterable):
        raise InvalidSetting(
            f"middleware={shown(given)} is not a list: give several, as in middleware=[Timed()]"
        )
    checked = tuple(given)
    for each in checked:
        if not isinstance(each, Middleware):
            raise InvalidSetting(
                f"middleware={shown(each)}: give instances of classes derived from Middleware"
            )
        for name in ("before", "after", "around"):
            check_runs("middleware", getattr(each, name))
    return checked


def run_function(
    function: Callable[..., Any],
    given: BoundArguments,
    current: CurrentTask,
    *,
    loop: CoroutineLoop,
    middleware: Sequence[Middleware] = (),
    timeout: float | None = None,
) -> Any:
    """Call the function as the current task; returns its value. Raises TaskTimeout, TaskCancelled, or its error.

    It runs in a copy of the context: its middleware sees its changes of context variables, and nothing after it does.
    """

    def call_function() -> Any:  # see CALLS
        with _cancelled_is_a_failure():
            if timeout is None or inspect.iscoroutinefunction(function):
                value = function(*given.args, **given.kwargs)
            else:
                value = interrupted_after(timeout, lambda: function(*given.args, **given.kwargs))
        return run_coroutine(loop, in_time(value, timeout), current) if inspect.iscoroutine(value) else value

    call = call_function
    for each in reversed(middleware):
        call = _wrapped(each, current, call)

    def call_as_current() -> Any:
        with running(current):
            return call()

    return copy_context().run(call_as_current)


def _wrapped(middleware: Middleware, current: CurrentTask, call: Callable[[], Any]) -> Callable[[], Any]:
    def wrapped() -> Any:
        middleware.before(current)
        try:
            value = middleware.around(current, call)
        except BaseException as error:
            _call_after(middleware, current, None, error)
            raise
        _call_after(middleware, current, value, None)
        return value

    return wrapped


def _call_after(
    middleware: Middleware, current: CurrentTask, value: object, error: BaseException | None
) -> None:
    try:
        middleware.after(current, value, error)
    except Exception:
        _log.exception("the middleware %s failed after task %s", type(middleware).__name__, current.id)


@contextmanager
def _cancelled_is_a_failure() -> Iterator[None]:
    """Make a cancellation on an event loop that a plain function runs a failure: it does not end the worker."""
    try:
        yield
    except asyncio.CancelledError as error:
        raise CancelledError(OTHERS_CANCELLED) from error
