"""Locks and flags that an interrupt cannot leave taken, unlike a Condition, an Event or a Semaphore.

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

__all__ = ["RECHECK_SECONDS", "ChangeNotifier", "Flag", "PlainLock", "Turn", "is_over", "start"]

PlainLock: TypeAlias = "threading.Lock | threading.RLock"
T = TypeVar("T")

RECHECK_SECONDS = 1.0  # a change is seen by then whose maker was interrupted before it could notify


class Turn:
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
        self.turns: list[Turn] = []
        """Of those who wait now; appended to and removed from in one step each."""

    def notify_all(self) -> None:
        """Let all threads that wait look again. The lock may be held."""
        for turn in tuple(self.turns):
            turn.end()

    def wait_for(self, predicate: Callable[[], T], seconds: float | None = None) -> T:
        """Return what ``predicate`` gives under the lock: as soon as it is true, or its value after ``seconds``.

        The lock MUST NOT be held.
        """
        until = None if seconds is None else time.monotonic() + seconds
        while True:
            turn = Turn()
            try:
                self.turns.append(turn)
                with self._lock:
                    found = predicate()
                left = RECHECK_SECONDS if until is None else min(until - time.monotonic(), RECHECK_SECONDS)
                if found or left <= 0:
                    return found
                turn.wait(left)
            finally:
                with suppress(ValueError):
                    self.turns.remove(turn)


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


def start(thread: threading.Thread, forget: Callable[[], None]) -> None:
    """Start a thread that is noted already. Where that fails, or is cut off, ``forget`` takes the note back.

    No lock may be held: a thread that is interrupted here may stand still for ever on Python 3.11.
    """
    try:
        thread.start()
    except BaseException:
        forget()
        raise


def is_over(thread: threading.Thread | None) -> bool:
    """Return whether there is no thread, or it has ended, or was not started for a second after it was seen here.

    One that is noted is about to be started, unless the thread that noted it was interrupted just then.
    """
    if thread is None:
        return True
    if thread.ident is not None:
        return not thread.is_alive()
    now = time.monotonic()
    noted_at: float = thread.__dict__.setdefault("noted_at", now)
    return now - noted_at > RECHECK_SECONDS
