"""The threads in which tasks run, how much is prefetched for them, and the interruption of what takes too long."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, wait
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from shardq.base.waits import ChangeNotifier
from shardq.storage.per_process import forks
from shardq.tasks.errors import TaskCancelled, TaskTimeout
from shardq.worker.gate import Caution
from shardq.worker.loop import CoroutineLoop
from shardq.worker.report import WorkerReport

__all__ = [
    "LOOK_SECONDS",
    "OTHERS_CANCELLED",
    "Cancellable",
    "Loop",
    "PrefetchLimit",
    "ThreadPool",
    "a_thread_starts",
    "interrupted_after",
    "too_long",
]

T = TypeVar("T")

AHEAD_SECONDS = 0.5  # as many tasks are received ahead as are run in this time, as far as is known
MOST_AHEAD = 500
LOOK_SECONDS = 1.0  # between two looks at whether a task was cancelled
LONGEST_LOOK_SECONDS = 30.0  # of an async function that runs for long
OTHERS_CANCELLED = "something that the task awaited was cancelled"
_PAUSE = 0.001  # seconds
_PATIENCE = 10.0  # seconds: a thread whose start the handler of a signal has cut off seems to start for ever


class ThreadPool(Generic[T]):
    """Calls a function with each of what it is given, in up to ``most`` threads, in the order in which they come.

    The function MUST NOT raise. It is a pool of threads without futures, which cost a short task a tenth of its time.
    """

    def __init__(self, most: int, function: Callable[[T], None]) -> None:
        self._most, self._function = most, function
        self._waiting = SimpleQueue[T | None]()
        self._threads: list[threading.Thread] = []

    def put(self, item: T) -> None:
        """Call the function with it, as soon as a thread is free. For one thread."""
        self._waiting.put(item)
        if len(self._threads) < self._most:
            name = f"shardq-task_{len(self._threads)}"
            self._threads.append(threading.Thread(target=self._run, name=name, daemon=True))
            self._threads[-1].start()

    def close(self) -> None:
        """Wait until the function has been called with everything, and end the threads."""
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        here = forks.count
        while (item := self._waiting.get()) is not None:
            self._function(item)
            if forks.count != here:  # a child that the function has forked ends with it
                return


class PrefetchLimit:
    """How many messages a worker holds, and how many more it may receive: what it runs in half a second.

    The messages of a group keep a single thread busy, however many they are. So it holds of each group only what one
    thread runs in that time, and receives more while threads are idle. After a task at its last attempt was received
    it may hold fewer: see :class:`Caution`.
    """

    def __init__(self, threads: int, caution: Caution) -> None:
        self._threads, self._runs = threads or MOST_AHEAD, threads or 1
        self._caution = caution
        self._lock = threading.Lock()
        self._changes = ChangeNotifier(self._lock)
        self._seconds = AHEAD_SECONDS  # that a task takes, as far as is known
        self.held = 0
        self._units = 0  # in which they are held: each keeps one thread busy
        self._ended = 0  # of those, which are to be settled

    def wait_for_room(self, seconds: float) -> int:
        """Return how many may be received: none, when there was no room for so many seconds."""
        self._changes.wait_for(lambda: self._free > 0, seconds)
        return self._free

    def wait_for_less(self, held: int, seconds: float) -> None:
        """Sleep until fewer than ``held`` are held."""
        self._changes.wait_for(lambda: self.held < held, seconds)

    def take(self, count: int, units: int) -> None:
        """Count messages as held, in so many units."""
        with self._lock:
            self.held += count
            self._units += units

    def give(self, count: int, units: int) -> None:
        """Count messages that have been run as held no longer."""
        with self._lock:
            self.held -= count
            self._units -= units
            self._ended -= count
        self._changes.notify_all()

    def with_held(self, report: WorkerReport) -> WorkerReport:
        """Return a report with how many messages are held, and how many of them have been run."""
        with self._lock:
            return msgspec.structs.replace(report, in_flight=self.held, settling=self._ended)

    @property
    def at_once(self) -> int:
        """How many tasks begin at once, when they are put before all others."""
        with self._lock:
            return max(0, self._runs - self._units)

    @property
    def of_a_group(self) -> int:
        """How many messages of one group may be held."""
        with self._lock:
            return max(1, self._ahead(1))

    def limit(self, most: int | None) -> None:
        """Limit how many may be held because of what was received: see :meth:`Caution.limit`."""
        with self._lock:
            self._caution.limit(most)

    def ran(self, count: int, seconds: float) -> None:
        """Learn how long tasks take that have been run."""
        with self._lock:
            self._ended += count
            self._seconds += (seconds / count - self._seconds) / 8

    def _ahead(self, threads: int) -> int:
        """Return how many tasks so many threads run in half a second, as far as is known."""
        return min(MOST_AHEAD, int(AHEAD_SECONDS * threads / max(self._seconds, 0.0001)))

    @property
    def _free(self) -> int:
        if self._caution.most is not None:
            return max(0, self._caution.most - self.held)
        capacity = self._threads + self._ahead(self._threads)
        free = capacity - self.held
        if (idle := self._threads - self._units) > 0:
            return max(free, idle * max(1, self._ahead(1)))
        return free if 2 * free >= capacity else 0


class Cancellable(Protocol):
    """A running task, as far as its event loop has to know it."""

    name: str
    id: str

    def find_out(self) -> bool:
        """Return whether it was cancelled, as far as is known."""


class Loop(CoroutineLoop):
    """The event loop of async tasks. It begins with the first of them."""

    def run(self, make: Coroutine[Any, Any, Any], task: Cancellable) -> Any:
        """Run a coroutine to its end. It is cancelled when its task is: TaskCancelled is raised."""
        future = self.begin(make)
        began, told = time.monotonic(), False
        while not wait([future], _look_after(time.monotonic() - began)).done:
            if task.find_out():
                told = future.cancel()
        try:
            return future.result()
        except CancelledError:
            if told:
                raise TaskCancelled(f"task {task.name!r}, {task.id}, was cancelled") from None
            raise CancelledError(OTHERS_CANCELLED) from None


def _look_after(seconds: float) -> float:
    """When to ask next whether a task was cancelled that has run for so long."""
    return min(LONGEST_LOOK_SECONDS, max(LOOK_SECONDS, seconds / 20))


def too_long(timeout: float | None) -> TaskTimeout:
    """Return the error of a task that ran for longer than its timeout."""
    return TaskTimeout(f"the task ran for longer than its timeout of {timeout:g} seconds")


def interrupted_after(timeout: float, call: Callable[[], Any]) -> Any:
    """Return what a call returns. Raises TaskTimeout after the timeout: it is interrupted between two steps of Python.

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
        raise too_long(timeout) from None


_own = threading.local()
"""The innermost ``interruption`` of each thread: a task may call another one, which has a timeout too."""


class _Interrupted(BaseException):
    """Raised in a thread. It is no Exception, so that a function which catches all of those is ended too."""


def a_thread_starts() -> bool:
    """Return True while any thread of this process starts another one, as a consumer may: see `_Interruption.gate`.

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
