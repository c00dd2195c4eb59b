"""A clock that stands still until it is told to move."""

from __future__ import annotations

import threading

from shardq.clock import microseconds
from shardq.errors import InvalidSetting
from shardq.wording import shown

__all__ = ["ManualClock"]


class ManualClock:
    """Tells the time that a test has set; safe to share between threads.

    >>> clock = ManualClock(start=1_000_000)
    >>> clock.advance(2.5)
    >>> clock.now()
    3500000
    """

    def __init__(self, start: int = 1_700_000_000_000_000) -> None:
        self._now = start
        self._lock = threading.Lock()

    def now(self) -> int:
        """Microseconds since 1970-01-01 UTC, as set."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Move on by so many seconds."""
        if seconds < 0:
            raise InvalidSetting(f"seconds={shown(seconds)}: a clock does not go back: give 0 or more")
        with self._lock:
            self._now += microseconds(seconds)
