"""Waking those who wait for messages."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from shardq.storage.sqlite.forks import watch_forks
from shardq.storage.sqlite.log import LogWatch

__all__ = ["Signals"]

_FIRST_PAUSE = 0.01
_LONGEST_PAUSE = 0.075
_GROWTH = 1.5


class Signals:
    """Sleeps until a queue's number in the file changes.

    Threads of this process are woken by :meth:`announce`; for the sake of other processes the file is looked
    at every 10 to 75 ms, at first by the times of its log, which costs next to nothing.
    """

    def __init__(self, number: Callable[[str], int], path: Path) -> None:
        self._number = number
        self._path = path
        self._seen = threading.local()
        self._start()
        watch_forks(before=self._hold, after_in_parent=self._let_go, after_in_child=self._start)

    def announce(self) -> None:
        """Wake the threads that wait, so that they look again."""
        with self._changed:
            self._announced += 1
            self._changed.notify_all()

    def wait(self, queue: str, seconds: float) -> bool:
        """Return True when the number has changed since this thread's last wait, False after ``seconds``."""
        deadline = time.monotonic() + seconds
        watch, pauses = LogWatch(self._path), _pauses()
        announced = self._announced
        while not self._news(queue):
            if not self._rest(announced, watch, pauses, deadline):
                return False
            announced = self._announced
        return True

    def _rest(self, announced: int, watch: LogWatch, pauses: Iterator[float], deadline: float) -> bool:
        """Sleep until the file has to be looked at again; False when the time is over."""
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._sleep(announced, min(next(pauses), left))
            if announced != self._announced or not watch.quiet():
                return True

    def _news(self, queue: str) -> bool:
        """Tell whether the number differs from the one that this thread saw last; 0 if it never looked."""
        number = self._number(queue)
        seen: dict[str, int] = self._seen.__dict__.setdefault("numbers", {})
        changed = number != seen.get(queue, 0)
        seen[queue] = number
        return changed

    def _sleep(self, announced: int, seconds: float) -> None:
        with self._changed:
            if announced == self._announced:
                self._changed.wait(seconds)

    def _start(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._announced = 0

    def _hold(self) -> None:
        self._changed.acquire()

    def _let_go(self) -> None:
        self._changed.release()


def _pauses() -> Iterator[float]:
    pause = _FIRST_PAUSE
    while True:
        yield pause
        pause = min(pause * _GROWTH, _LONGEST_PAUSE)
