"""Waking those who wait for messages."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from shardq.storage.per_process import watch_forks
from shardq.storage.sqlite.log import EventSleeper, PollingSleeper, Sleeper, tell

__all__ = ["Signals"]


class Signals:
    """Sleeps until the number of one of several queues changes in the file, which ``numbers`` reads.

    Who has changed one says so by :meth:`announce`, which wakes the threads of this process, and those of others
    through the operating system. Where it cannot do that, they look at the file's log now and then.
    """

    def __init__(self, numbers: Callable[[Sequence[str]], Mapping[str, int]], path: Path) -> None:
        self.numbers = numbers
        self._path, self._place = path, str(path)
        self._seen = threading.local()
        self._closed = False
        self._start()
        watch_forks(self)

    def announce(self) -> None:
        """Wake who waits, so that they look again. Who comes to wait later sees what was committed."""
        tell(self._place)
        if not self.sleepers:
            return
        with self._lock:
            for sleeper in self.sleepers:
                sleeper.wake()

    def wait(self, queues: Sequence[str], seconds: float) -> tuple[str, ...]:
        """Return the queues whose numbers have changed since this thread's last wait; none after ``seconds``."""
        deadline = time.monotonic() + seconds
        with self._sleeper() as sleeper:
            while not (news := self._news(queues)):
                if (left := deadline - time.monotonic()) > 0:
                    sleeper.sleep(left)
                if time.monotonic() >= deadline:
                    return ()  # the next wait begins with a look
            sleeper.found()
        return news

    def close(self) -> None:
        """Give the watches back, those in use at the end of their wait; a wait afterwards takes one of its own."""
        with self._lock:
            self._closed = True
            for sleeper in self.resting:
                sleeper.close()
            self.resting.clear()

    def before_fork(self) -> None:
        """Let no thread begin or end a wait."""
        self._lock.acquire()

    def after_fork_in_parent(self) -> None:
        """Go on."""
        self._lock.release()

    def after_fork_in_child(self) -> None:
        """Go on with none of the parent's watches, which are still in use there."""
        for sleeper in (*self.sleepers, *self.resting):
            sleeper.close()
        self._start()

    def _news(self, queues: Sequence[str]) -> tuple[str, ...]:
        """Return the queues whose numbers differ from those that this thread saw last; 0 if it never looked."""
        numbers = self.numbers(queues)
        seen: dict[str, int] = self._seen.__dict__.setdefault("numbers", {})
        news = tuple(queue for queue in queues if numbers.get(queue, 0) != seen.get(queue, 0))
        seen.update((queue, numbers.get(queue, 0)) for queue in news)
        return news

    @contextmanager
    def _sleeper(self) -> Iterator[Sleeper]:
        with self._lock:
            sleeper = self.resting.pop() if self.resting else _make_sleeper(self._path)
            self.sleepers.add(sleeper)
        try:
            yield sleeper
        finally:
            with self._lock:
                self.sleepers.discard(sleeper)
                if sleeper.lasting and not self._closed:
                    self.resting.append(sleeper)
                else:
                    sleeper.close()

    def _start(self) -> None:
        self._lock = threading.Lock()
        self.sleepers: set[Sleeper] = set()
        self.resting: list[Sleeper] = []


def _make_sleeper(path: Path) -> Sleeper:
    try:
        return EventSleeper(path)
    except OSError:  # no watch left, no such folder yet, or not Linux
        return PollingSleeper(path)
