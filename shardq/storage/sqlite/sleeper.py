"""Sleeping until a file's log was written to."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Protocol

from shardq.storage.sqlite.log import LogWatch

__all__ = ["PollingSleeper", "Sleeper"]

_FIRST_PAUSE = 0.01
_LONGEST_PAUSE = 0.075
_GROWTH = 1.5


class Sleeper(Protocol):
    """Sleeps for one thread at a time, from before it looked at the file until after it was woken.

    One that is ``lasting`` is better kept between two waits than made anew.
    """

    lasting: bool

    def sleep(self, seconds: float) -> None:
        """Sleep until there may be news, for that many seconds at most; MAY end sooner."""
        ...

    def found(self) -> None:
        """Be told that there was news."""
        ...

    def wake(self) -> None:
        """End this sleep, or the next one. For other threads."""
        ...

    def close(self) -> None:
        """Give up what it holds."""
        ...


class PollingSleeper:
    """Looks at the times of the log every 10 to 75 ms, which costs next to nothing. Works everywhere."""

    lasting = False

    def __init__(self, path: Path) -> None:
        self._watch = LogWatch(path)
        self._woken = threading.Event()
        self._pause = _FIRST_PAUSE

    def sleep(self, seconds: float) -> None:
        """Sleep until there may be news."""
        while seconds > 0:
            pause = min(self._pause, seconds)
            seconds -= pause
            if self._woken.wait(pause) or not self._watch.quiet():
                break
            self._pause = min(self._pause * _GROWTH, _LONGEST_PAUSE)
        self._woken.clear()

    def found(self) -> None:
        """Nothing changes."""

    def wake(self) -> None:
        """End this sleep, or the next one."""
        self._woken.set()

    def close(self) -> None:
        """Hold nothing."""
