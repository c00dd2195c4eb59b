"""What a running task knows of itself."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import msgspec

from shardq.base.wording import shown
from shardq.errors import InvalidSetting, ShardqError
from shardq.tasks.entries import MAX_ENTRY_BYTES
from shardq.tasks.errors import ResultRejected, ResultTimeout, TaskCancelled, WaitRejected
from shardq.tasks.result_backend import ResultBackend

__all__ = ["CurrentTask", "check_wait", "current_task", "is_in_worker", "running"]

_log = logging.getLogger(__name__)
LOOK_SECONDS = 1.0  # a task that asks whether it was cancelled asks the store so often
TELL_SECONDS = 0.5  # and notes its progress so often


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
        self._stopping = stopping  # whether its worker is told to stop; None: no worker runs it
        self._cancelled = False
        self._looked_at = time.monotonic()
        self._told_at = float("-inf")

    @property
    def cancelled(self) -> bool:
        """True when somebody has cancelled the task. The store is asked once a second at most.

        While the store is away the task goes on as before. A task without a result (``keep_result=0``) cannot be
        cancelled once it runs.
        """
        if not self._cancelled and time.monotonic() - self._looked_at >= LOOK_SECONDS:
            self.find_out()
        return self._cancelled

    def find_out(self) -> bool:
        """As :meth:`look`; when the store is away nothing more is known than before."""
        try:
            return self.look()
        except ShardqError as error:
            _log.debug("whether task %s was cancelled is not known: %s", self.id, error)
            return self._cancelled

    def look(self) -> bool:
        """Ask the store at once whether the task was cancelled. Raises StoreUnavailable."""
        self._looked_at = time.monotonic()
        if self._log is not None and self._keep and not self._cancelled:
            entry = self._log.standing([self.id], working=True).get(self.id)
            self._cancelled = entry is not None and entry.state == "cancelled"
        return self._cancelled

    def check(self) -> None:
        """Raise TaskCancelled when somebody has cancelled the task."""
        if self.cancelled:
            raise TaskCancelled(f"task {self.name!r}, {self.id}, was cancelled")

    def progress(self, value: Any, *, at_once: bool = False) -> None:
        """Note how far the task is: any value that msgspec can write. :meth:`Result.progress` shows the last one.

        It is written twice a second at most, unless ``at_once``; what comes sooner is left out, and so is what comes
        while the store is away. Raises ResultRejected for what cannot be written, or is larger than a megabyte.
        """
        try:
            body = msgspec.msgpack.encode(value)
        except Exception as error:
            raise ResultRejected(
                f"progress {shown(value)} of task {self.name!r} cannot be stored: {error}; give plain values"
            ) from error
        if len(body) > MAX_ENTRY_BYTES:
            raise ResultRejected(
                f"progress of task {self.name!r} has {len(body):,} bytes, and may have {MAX_ENTRY_BYTES:,}: tell less"
            )
        now = time.monotonic()
        if self._log is None or not self._keep or not (at_once or now - self._told_at >= TELL_SECONDS):
            return
        self._told_at = now
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
        """Raise WaitRejected for a wait without a bound, and ResultTimeout when the worker is told to stop."""
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
                f"{what} has not ended, and the worker of task {self.name!r} is told to stop: ask again later"
            )


_current: ContextVar[CurrentTask] = ContextVar("shardq_current_task")


def current_task() -> CurrentTask:
    """The task that is running here. Raises InvalidSetting when none is."""
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
    """True in a task that a worker runs."""
    current = _current.get(None)
    return current is not None and current.is_in_worker


@contextmanager
def running(current: CurrentTask) -> Iterator[CurrentTask]:
    """Within it this is the current task."""
    if (outer := _current.get(None)) is not None:
        current.within(outer)
    token = _current.set(current)
    try:
        yield current
    finally:
        _current.reset(token)
