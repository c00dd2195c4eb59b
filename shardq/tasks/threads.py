"""Running the coroutines of async tasks, and the interruption of tasks that take too long."""

from __future__ import annotations

import asyncio
import ctypes
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from typing import Any, Protocol, TypeVar

from shardq.base.log import Log
from shardq.tasks.errors import TaskCancelled, TaskTimeout
from shardq.worker.loop import CoroutineLoop

__all__ = ["OTHERS_CANCELLED", "a_thread_starts", "in_time", "interrupted_after", "run_coroutine"]

_log = Log(__name__)

T = TypeVar("T")

OTHERS_CANCELLED = "something that the task awaited was cancelled"
_PAUSE = 0.001  # seconds
_PATIENCE = 10.0  # seconds: a thread whose start the handler of a signal has cut off seems to start for ever


class Cancellable(Protocol):
    """A running task, as far as its event loop has to know it."""

    name: str
    id: str

    def refresh_cancelled(self) -> bool:
        """Return whether it was cancelled, as far as is known."""


def run_coroutine(loop: CoroutineLoop, coroutine: Coroutine[Any, Any, Any], task: Cancellable) -> Any:
    """Run the coroutine of a task to its end. It is cancelled when its task is: TaskCancelled is raised then."""
    cancelled = False

    def refresh_cancelled() -> bool:
        nonlocal cancelled
        cancelled = task.refresh_cancelled()
        return cancelled

    try:
        value = loop.run(coroutine, refresh_cancelled)
    except CancelledError:
        if not cancelled:
            raise CancelledError(OTHERS_CANCELLED) from None
    if cancelled:
        raise TaskCancelled(f"task {task.name!r}, {task.id}, was cancelled") from None
    return value


async def in_time(work: Coroutine[Any, Any, T], timeout: float | None) -> T:
    """Return the result of a coroutine. It is cancelled after the timeout, and TaskTimeout is raised."""
    try:
        async with asyncio.timeout(timeout) as bound:
            return await work
    except TimeoutError:
        if bound.expired():
            raise _too_long(timeout) from None
        raise


def _too_long(timeout: float | None) -> TaskTimeout:
    return TaskTimeout(f"the task ran for longer than its timeout of {timeout:g} seconds")


def interrupted_after(timeout: float, call: Callable[[], Any]) -> Any:
    """Return the result of a call. Raises TaskTimeout after the timeout: it is interrupted between two steps of Python.

    A call into a library that does not return is not interrupted. This is not a context manager: an interruption in the
    code of a context manager would be raised outside of its `try`.
    """
    outer: _Interruption | None = getattr(_own, "interruption", None)
    before = 0 if outer is None else outer.sent
    interruption = _own.interruption = _Interruption(threading.get_ident(), outer)
    timer = threading.Timer(timeout, interruption.send)
    timer.daemon = True
    try:
        try:
            if outer is None:
                timer.start()  # which may take longer than the timeout
            else:
                with outer.gate:
                    timer.start()
            return call()
        finally:
            timer.cancel()
            interruption.end()
            _own.interruption = outer
            if outer is not None and outer.sent > before:  # in place of what this one may have caught
                raise _Interrupted
    except _Interrupted:
        interruption.end()  # the outer one may have come within that
        _own.interruption = outer
        # The outer one was sent since the call began; or before, and is raised only now.
        if outer is not None and (outer.sent > before or interruption.sent == before):
            raise
        raise _too_long(timeout) from None


_own = threading.local()
"""The innermost ``interruption`` of each thread: a task may call another one, which has a timeout too."""


class _Interrupted(BaseException):
    """Raised in a thread. It is not an Exception, so that a function which catches all of those is ended too."""


def a_thread_starts() -> bool:
    """Return True while any thread of this process starts another one, as a consumer may: see `_Interruption.gate`.

    No other thread runs in the first milliseconds after the sleep, so that the answer still holds for the caller. The
    frames of a thread would show its work, but Python 3.11 crashes now and then when another thread reads them.
    """
    time.sleep(0)
    return bool(threading._limbo)  # type: ignore[attr-defined]  # noqa: SLF001 - its only name


class _Interruption:
    """Raises it in a thread, unless its call has ended. ``outer`` is that of the task that called this one."""

    def __init__(self, thread: int, outer: _Interruption | None) -> None:
        self._thread, self._outer = ctypes.c_ulong(thread), outer
        self.gate: threading.Lock = threading.Lock() if outer is None else outer.gate
        """Held while the thread starts another one. In Python 3.11 that has the id of the first one for a moment, and
        would be ended in its place."""
        self._lock = threading.Lock()
        self._ended = self._sent = False

    @property
    def sent(self) -> int:
        """How many were sent: this one, and those around it.

        A call is ended by an exception that is sent after it has begun.
        """
        return self._sent + (0 if self._outer is None else self._outer.sent)

    def send(self) -> None:
        with self.gate, self._lock:
            until = time.monotonic() + _PATIENCE
            while not self._ended and a_thread_starts() and time.monotonic() < until:
                time.sleep(_PAUSE)
            if not self._ended:
                self._sent = True
                ctypes.pythonapi.PyThreadState_SetAsyncExc(self._thread, ctypes.py_object(_Interrupted))

    def end(self) -> None:
        """Send nothing more, and catch an exception that was sent and has not been raised yet. In the thread itself.

        After an exception was taken back with None in its place, Python 3.11 looks for it at every call, for ever.
        """
        with self._lock:
            self._ended = True
        if self._sent:
            try:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(self._thread, ctypes.py_object(_Interrupted))
                while True:  # it takes the place of the one before
                    pass
            except _Interrupted:
                pass
