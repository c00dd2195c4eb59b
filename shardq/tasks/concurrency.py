"""How a worker runs several tasks at a time: its threads, how much it prefetches, and what of that has not begun."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from queue import SimpleQueue
from typing import Generic, TypeVar

import msgspec

from shardq.base.waits import ChangeNotifier
from shardq.errors import ShardqError
from shardq.message import Message
from shardq.storage.per_process import forks
from shardq.tasks.ids import result_id
from shardq.tasks.result_backend import RESERVED_SECONDS, ResultBackend
from shardq.worker.last_attempts import Caution
from shardq.worker.report import WorkerReport

__all__ = ["PrefetchLimit", "ReservedTasks", "ThreadPool"]

T = TypeVar("T")

AHEAD_SECONDS = 0.5  # as many tasks are received ahead as are run in this time, as far as is known
MOST_AHEAD = 500
PATIENCE_SECONDS = 0.5  # for which a task waits in its worker before that is noted


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


class ReservedTasks:
    """The tasks that one worker has received and not begun, so that others see that these wait. Safe for threads.

    A worker receives tasks before it can run them, and all that it holds is in flight in the store. Noting the begin of
    each would cost every task a request. So what has waited in the worker for half a second is noted, once, and taken
    back when it begins; so is what has ended, and is settled with the rest of its group. A note is for one delivery,
    and is kept for a minute: what a dead worker has noted hides nothing.
    """

    def __init__(self, results: ResultBackend) -> None:
        self._results = results
        # By the id of each: when it is to be noted, and its delivery.
        self._held: dict[str, tuple[float, int]] = {}
        self._noted: set[str] = set()
        self._lock, self._writing = threading.Lock(), threading.Lock()

    @property
    def are_new(self) -> bool:
        """True when some are to be noted soon."""
        return len(self._held) > len(self._noted)

    def add(self, messages: Iterable[Message], patience: float = PATIENCE_SECONDS) -> None:
        """Add tasks that were received, or that have ended. They are noted after so many seconds."""
        at = time.monotonic() + patience
        with self._lock:
            self._held.update((result_id(each), (at, each.deliveries)) for each in messages)

    def remove(self, messages: Iterable[Message]) -> None:
        """Take out tasks that begin, or are returned to their queue. A store that is unreachable does not hold them."""
        with self._lock:
            ids = [each for each in map(result_id, messages) if self._held.pop(each, None)]
            noted = self._noted.intersection(ids)
            self._noted -= noted
        if noted:
            with self._writing, suppress(ShardqError):  # after what is being noted
                self._results.remove_reserved(noted)

    def write_due(self) -> None:
        """Note those that have waited for long enough, in one request."""
        now = time.monotonic()
        with self._writing:
            with self._lock:
                late = {each: delivery for each, (at, delivery) in self._held.items() if at <= now}
                self._held.update((each, (now + RESERVED_SECONDS / 2, late[each])) for each in late)
                self._noted.update(late)
            if late:
                with suppress(ShardqError):
                    self._results.enter_reserved(late)
