"""How many messages a worker of tasks holds, and how many more it may receive."""

from __future__ import annotations

import threading

import msgspec

from shardq.base.waits import ChangeNotifier
from shardq.worker.gate import Caution
from shardq.worker.report import WorkerReport

__all__ = ["MOST_AHEAD", "Room"]

AHEAD_SECONDS = 0.5  # as many tasks are received ahead as are run in this time, as far as is known
MOST_AHEAD = 500


class Room:
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
        """How many may be received: none, when there was no room for so many seconds."""
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
