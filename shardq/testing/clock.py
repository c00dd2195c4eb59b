"""A clock and a timer that stand still until they are moved."""

from __future__ import annotations

import threading
import time

from shardq.base.clock import microseconds
from shardq.base.texts import shown
from shardq.errors import InvalidSetting

__all__ = ["ManualClock", "ManualTimer"]


class ManualClock:
    """Returns the time that a test has set; safe to share between threads.

    >>> clock = ManualClock(start=1_000_000)
    >>> clock.advance(2.5)
    >>> clock.now()
    3500000
    """

    def __init__(self, start: int = 1_700_000_000_000_000) -> None:
        self._now = start
        self._lock = threading.Lock()

    def now(self) -> int:
        """Return microseconds since 1970-01-01 UTC, as set."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Move on by ``seconds``."""
        _check(seconds)
        with self._lock:
            self._now += microseconds(seconds)


class ManualTimer:
    """Measures seconds in place of :func:`time.monotonic`, and starts from its value. Safe to share.

    >>> timer = ManualTimer()
    >>> began = timer()
    >>> timer.advance(2.5)
    >>> timer() - began
    2.5
    """

    def __init__(self) -> None:
        self._now = int(time.monotonic()) * 1_000_000  # whole microseconds, so that sums are exact
        self._lock = threading.Lock()

    def __call__(self) -> float:
        """Return the seconds since a moment that means nothing."""
        return self._now / 1_000_000

    def advance(self, seconds: float) -> None:
        """Move on by the given number of seconds."""
        _check(seconds)
        with self._lock:
            self._now += microseconds(seconds)


def _check(seconds: float) -> None:
    if seconds < 0:
        raise InvalidSetting(f"seconds={shown(seconds)}: a clock does not go back: give 0 or more")
