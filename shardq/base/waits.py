"""Locks, flags and threads that an interrupt cannot leave taken, unlike a Condition, an Event or a Semaphore.

A thread may be interrupted between any two steps: by a signal's handler that raises, or by another thread, such as the
timeout of a task. Those of the standard library take their locks in functions written in Python. One that is cut off
there leaves its lock taken for ever, or releases that of another thread. A plain lock in a ``with`` is taken and
released in one step each.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias, TypeVar

__all__ = ["RECHECK_SECONDS", "BackgroundThread", "ChangeNotifier", "Flag", "ThreadWait"]

PlainLock: TypeAlias = "threading.Lock | threading.RLock"
T = TypeVar("T")

RECHECK_SECONDS = 1.0  # a change is seen by then whose maker was interrupted before it could notify


class ThreadWait:
    """A wait of one thread that another one ends."""

    def __init__(self) -> None:
        self._gate = threading.Lock()
        self._gate.acquire()

    def wait(self, seconds: float = -1) -> None:
        """Wait until it is ended, for at most ``seconds``; -1: for ever."""
        self._gate.acquire(timeout=seconds)

    def end(self) -> None:
        """Let the thread continue, also one that waits later."""
        with suppress(RuntimeError):  # ended before
            self._gate.release()


class ChangeNotifier:
    """Lets threads wait for a change of the data that a lock guards."""

    def __init__(self, lock: PlainLock) -> None:
        self._lock = lock
        self.waits: list[ThreadWait] = []
        """Of those who wait now; appended to and removed from in one step each."""

    def notify_all(self) -> None:
        """Let all threads that wait look again. The lock may be held."""
        for each in tuple(self.waits):
            each.end()

    def wait_for(self, predicate: Callable[[], T], seconds: float | None = None) -> T:
        """Return what ``predicate`` gives under the lock: as soon as it is true, or its value after ``seconds``.

        The lock MUST NOT be held.
        """
        until = None if seconds is None else time.monotonic() + seconds
        while True:
            own = ThreadWait()
            try:
                self.waits.append(own)
                with self._lock:
                    found = predicate()
                left = RECHECK_SECONDS if until is None else min(until - time.monotonic(), RECHECK_SECONDS)
                if found or left <= 0:
                    return found
                own.wait(left)
            finally:
                with suppress(ValueError):
                    self.waits.remove(own)


class Flag:
    """A flag that is set by one thread and waited for by others."""

    def __init__(self) -> None:
        self._is_set = False
        self._changes = ChangeNotifier(threading.Lock())

    def is_set(self) -> bool:
        """Return whether it is set: between :meth:`set` and :meth:`clear`."""
        return self._is_set

    def set(self) -> None:
        """Let all waiting threads continue, now and later."""
        self._is_set = True
        self._changes.notify_all()

    def clear(self) -> None:
        """Let threads wait from now on."""
        self._is_set = False

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it is set, for at most ``seconds``; returns whether it is."""
        return self._is_set or self._changes.wait_for(self.is_set, seconds)


class BackgroundThread:
    """A daemon thread that its owner starts when there is something to do, and again once it has ended.

    The owner calls :meth:`prepare` under its lock. If that returns a thread, it calls :meth:`begin` without the lock:
    on Python 3.11 a thread that is interrupted while it starts another one may stand still for ever. The work
    continues only while :attr:`is_current` is true, because an interrupted start may leave a second thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.thread: threading.Thread | None = None
        """The thread that was prepared last; None when it was forgotten."""

    @property
    def is_current(self) -> bool:
        """True in the thread that does the work, until it is forgotten."""
        return self.thread is threading.current_thread()

    @property
    def has_ended(self) -> bool:
        """True when there is no thread, it has ended, or it was not started within a second after it was seen here.

        A prepared thread is about to be started, unless the thread that prepared it was interrupted just then.
        """
        thread = self.thread
        if thread is None:
            return True
        if thread.ident is not None:
            return not thread.is_alive()
        now = time.monotonic()
        noted_at: float = thread.__dict__.setdefault("noted_at", now)
        return now - noted_at > RECHECK_SECONDS

    def prepare(self, work: Callable[[], None]) -> threading.Thread | None:
        """Return a thread that is to be started; None while another one does the work. The lock is held."""
        if not self.has_ended:
            return None
        self.thread = threading.Thread(target=work, name=self._name, daemon=True)
        return self.thread

    def begin(self, thread: threading.Thread) -> bool:
        """Start a thread that was prepared. The lock is not held.

        Returns False when no thread can be started: the interpreter is about to end, or there are too many. Then the
        thread is forgotten, and after an interrupt too, unless it began before.
        """
        try:
            thread.start()
        except BaseException as error:
            if thread not in threading.enumerate():  # else it runs, or is about to
                self.forget(thread)
            if isinstance(error, RuntimeError):
                return False
            raise
        return True

    def run(self, work: Callable[[], None]) -> None:
        """Do the work in a thread, for an owner that has one thread only and no lock. Nothing where none can start."""
        new = self.prepare(work)
        if new is not None:
            self.begin(new)

    def forget(self, thread: threading.Thread | None = None) -> None:
        """Let another thread begin in place of this one, or of the one that calls."""
        if self.thread is (thread or threading.current_thread()):
            self.thread = None

    def join(self, seconds: float | None = None) -> None:
        """Wait up to ``seconds`` for the end of the work. Returns at once in the thread itself."""
        if (thread := self.thread) is not None:
            with suppress(RuntimeError):  # it is this one, is being started just now, or could not be started
                thread.join(seconds)
