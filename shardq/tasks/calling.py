"""How the function of a task is called: within its middleware, in its time, and on an event loop where it is async."""

from __future__ import annotations

import asyncio
import ctypes
import inspect
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, wait
from contextlib import contextmanager
from contextvars import copy_context
from inspect import BoundArguments
from typing import Any

from shardq.base.callables import check_runs
from shardq.base.waits import Flag, start
from shardq.base.wording import shown
from shardq.errors import InvalidSetting
from shardq.tasks.current import LOOK_SECONDS, CurrentTask, running
from shardq.tasks.errors import TaskCancelled, TaskTimeout

__all__ = ["Loop", "Middleware", "a_thread_starts", "check_middleware", "run_function"]

_log = logging.getLogger(__name__)
_OTHERS = "something that the task awaited was cancelled"
LONGEST_LOOK_SECONDS = 30.0  # between two looks at whether an async function was cancelled


class Middleware:
    """What runs around every task of an app, in the thread of the worker that runs it. Override what you need.

    What ``before`` or ``around`` raises is a failure of the task. What ``after`` raises is logged.

    >>> class Timed(Middleware):
    ...     def ancestors_of(self, task: CurrentTask, call: Callable[[], object]) -> object:
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
        """Called before the task runs."""

    def after(self, task: CurrentTask, value: object, error: BaseException | None) -> None:
        """Called when it has ended, with what it returned or raised."""

    def ancestors_of(self, task: CurrentTask, call: Callable[[], object]) -> object:  # noqa: ARG002
        """Run the task by ``call()``, and return what it returned. For an async function that is its result too."""
        return call()


def check_middleware(given: object) -> tuple[Middleware, ...]:
    """The middleware of an app. Raises InvalidSetting for what is none, or has a method that a call does not run."""
    if isinstance(given, Middleware) or not isinstance(given, Iterable):
        raise InvalidSetting(
            f"middleware={shown(given)} is no list: give several, as in middleware=[Timed()]"
        )
    checked = tuple(given)
    for each in checked:
        if not isinstance(each, Middleware):
            raise InvalidSetting(
                f"middleware={shown(each)}: give instances of classes derived from Middleware"
            )
        for name in ("before", "after", "ancestors_of"):
            check_runs("middleware", getattr(each, name))
    return checked


class Loop:
    """An event loop in a thread of its own. It begins with the first coroutine."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._over = Flag()

    def run(self, make: Coroutine[Any, Any, Any], current: CurrentTask) -> Any:
        """Run a coroutine to its end. It is cancelled when the task is: TaskCancelled is raised."""
        future = asyncio.run_coroutine_threadsafe(make, self._begun())
        began, told = time.monotonic(), False
        while not wait([future], _look_after(time.monotonic() - began)).done:
            if current.find_out():
                told = future.cancel()
        try:
            return future.result()
        except CancelledError:
            if told:
                raise TaskCancelled(f"task {current.name!r}, {current.id}, was cancelled") from None
            raise CancelledError(_OTHERS) from None

    def close(self) -> None:
        """End the loop and its thread. What still runs on it is cancelled."""
        if self._loop is not None and self._thread is not None:
            asyncio.run_coroutine_threadsafe(_cancel_all(), self._loop).result()
            self._over.set()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self._loop = self._thread = None

    def _begun(self) -> asyncio.AbstractEventLoop:
        new = None
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._over.clear()
                new = self._thread = threading.Thread(
                    target=_run_on, args=[self._loop, self._over], name="shardq-tasks-loop", daemon=True
                )
            loop = self._loop
        if new is not None:
            start(new, self._forget)
        return loop

    def _forget(self) -> None:
        with self._lock:
            self._loop = self._thread = None


def run_function(
    function: Callable[..., Any],
    given: BoundArguments,
    current: CurrentTask,
    *,
    loop: Loop,
    middleware: Sequence[Middleware] = (),
    timeout: float | None = None,
) -> Any:
    """Call the function as the current task; returns its value. Raises TaskTimeout, TaskCancelled, or its error.

    It runs in a copy of the context: what it sets of context variables is seen by its middleware, and by nothing after.
    """

    def call_function() -> Any:  # see CALLS
        with _cancelled_is_a_failure():
            if timeout is None or inspect.iscoroutinefunction(function):
                value = function(*given.args, **given.kwargs)
            else:
                value = _interrupted_after(timeout, lambda: function(*given.args, **given.kwargs))
        return loop.run(_in_time(value, timeout), current) if inspect.iscoroutine(value) else value

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
            value = middleware.ancestors_of(current, call)
        except BaseException as error:
            _tell(middleware, current, None, error)
            raise
        _tell(middleware, current, value, None)
        return value

    return wrapped


def _tell(middleware: Middleware, current: CurrentTask, value: object, error: BaseException | None) -> None:
    try:
        middleware.after(current, value, error)
    except Exception:
        _log.exception("the middleware %s failed after task %s", type(middleware).__name__, current.id)


def _run_on(loop: asyncio.AbstractEventLoop, over: Flag) -> None:
    """Run a loop until it is over. A coroutine that raises an exit ends it too, before others are told, or stops it."""
    while not over.is_set():
        try:
            loop.run_forever()
        except (SystemExit, KeyboardInterrupt) as exit_:
            _log.debug("an async function raised %r: the event loop goes on", exit_)


async def _in_time(work: Coroutine[Any, Any, Any], timeout: float | None) -> Any:
    try:
        async with asyncio.timeout(timeout) as bound:
            return await work
    except TimeoutError:
        if bound.expired():
            raise _too_long(timeout) from None
        raise


def _too_long(timeout: float | None) -> TaskTimeout:
    return TaskTimeout(f"the task ran for longer than its timeout of {timeout:g} seconds")


def _look_after(seconds: float) -> float:
    """When to ask next whether a task was cancelled that has run for so long."""
    return min(LONGEST_LOOK_SECONDS, max(LOOK_SECONDS, seconds / 20))


async def _cancel_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for each in others:
        each.cancel()
    await asyncio.gather(*others, return_exceptions=True)


@contextmanager
def _cancelled_is_a_failure() -> Iterator[None]:
    """A plain function may run an event loop of its own: what is cancelled on that does not end the worker."""
    try:
        yield
    except asyncio.CancelledError as error:
        raise CancelledError(_OTHERS) from error


def _interrupted_after(timeout: float, call: Callable[[], Any]) -> Any:
    """What a call returns. Raises TaskTimeout when it takes longer: it is interrupted between two steps of Python.

    A call into a library that does not return is not interrupted. This is no context manager: an interruption in the
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


_PAUSE = 0.001  # seconds

_PATIENCE = (
    10.0  # seconds: a thread whose start was cut off by the handler of a signal seems to start for ever
)

_own = threading.local()
"""The innermost ``interruption`` of each thread: a task may call another one, which has a timeout too."""


class _Interrupted(BaseException):
    """Raised in a thread. It is no Exception, so that a function which catches all of those is ended too."""


def a_thread_starts() -> bool:
    """True while any thread of this process starts another one, as a consumer may: see `_Interruption.gate`.

    No other thread runs in the first milliseconds after the sleep, so that what is seen is still so for who asks. The
    frames of a thread would tell what that one does, but Python 3.11 crashes now and then who reads those of another.
    """
    time.sleep(0)
    return bool(threading._limbo)  # type: ignore[attr-defined]  # noqa: SLF001 - its only name


class _Interruption:
    """Raises it in a thread, unless what that ran has ended. ``outer`` is that of the task that called this one."""

    def __init__(self, thread: int, outer: _Interruption | None) -> None:
        self._thread, self._outer = ctypes.c_ulong(thread), outer
        self.gate: threading.Lock = threading.Lock() if outer is None else outer.gate
        """Held while the thread starts another one. In Python 3.11 that has the id of the first one for a moment, and
        would be ended in its place."""
        self._lock = threading.Lock()
        self._ended = self._sent = False

    @property
    def sent(self) -> int:
        """How many were sent: this one, and those around it. A call is ended by what is sent after it has begun."""
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
        """Send nothing more, and catch what was sent and has not been raised yet. In the thread itself.

        What is taken back with None in its place is looked for at every call from then on, by Python 3.11 for ever.
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
