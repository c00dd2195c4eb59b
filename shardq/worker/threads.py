"""The threads in which a worker runs messages, the units that they run, and how many messages are received ahead."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Generic, TypeVar

import msgspec

from shardq.base.log import Log
from shardq.base.waits import ChangeNotifier
from shardq.client.batch import Batch
from shardq.client.queue_internals import chains_of, one_by_one
from shardq.storage.per_process import forks
from shardq.worker.attempt import Attempt
from shardq.worker.gate import HoldLimit
from shardq.worker.report import WorkerReport

__all__ = ["EndedUnits", "PrefetchLimit", "ThreadPool", "U", "Unit", "by_batch", "first_of", "units_of"]

_log = Log(__name__)


class Unit:
    """Messages of one batch that are run one after the other by one thread."""

    def __init__(self, batch: Batch, part: Batch) -> None:
        self.batch, self.attempt = batch, Attempt(part)
        self.received_at = time.monotonic()


U = TypeVar("U", bound=Unit)


def units_of(batch: Batch, of_a_group: int, make: Callable[[Batch, Batch], U]) -> list[U]:
    """Return units of a batch: of each message alone, and of the first few of each group, which run in their order."""
    if all(message.lane is None for message in batch):
        return [make(batch, part) for part in one_by_one(batch)]
    return [make(batch, batch.part(chain[:of_a_group])) for chain in chains_of(batch)]


def first_of(unit: U) -> U:
    """Return a unit of the first of its messages alone."""
    part = unit.attempt.batch
    return unit if len(part) == 1 else type(unit)(unit.batch, unit.batch.part(part[:1]))


class EndedUnits(Generic[U]):
    """Units that have run, for the thread that settles them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changes = ChangeNotifier(self._lock)
        self._units: list[U] = []
        self._closed = False

    def put(self, unit: U) -> None:
        """Add one."""
        with self._lock:
            self._units.append(unit)
        self._changes.notify_all()

    def take(self, *, wait: bool = True) -> list[U]:
        """Return all that there are. Waits for one; the list is empty when it is closed and there is none."""
        if wait:
            self._changes.wait_for(lambda: self._units or self._closed)
        with self._lock:
            units, self._units = self._units, []
            return units

    def close(self) -> None:
        """Close it: nothing more comes."""
        self._closed = True
        self._changes.notify_all()


def by_batch(units: Sequence[Unit]) -> list[tuple[Batch, Attempt]]:
    """Return the outcomes of the messages of each batch, in one attempt: they are settled together."""
    parts: dict[Batch, list[Attempt]] = {}
    for unit in units:
        parts.setdefault(unit.batch, []).append(unit.attempt)
    return [(batch, _joined(batch, attempts)) for batch, attempts in parts.items()]


def _joined(batch: Batch, attempts: Sequence[Attempt]) -> Attempt:
    joined = Attempt(batch.part(message for each in attempts for message in each.batch))
    joined.started = list(joined.batch)
    for each in attempts:
        joined.finished += each.finished
        joined.endings += each.endings
        joined.results |= each.results
        joined.interrupted += each.interrupted
        joined.held_back += [*each.held_back, *each.unstarted]
    return joined


T = TypeVar("T")

AHEAD_SECONDS = 0.5  # as many messages are received ahead as are run in this time, as far as is known
MOST_AHEAD = 500


class ThreadPool(Generic[T]):
    """Calls a function with each given value, in up to ``most`` threads, in the order in which they come.

    The function MUST NOT raise. If a thread cannot be started, the pool continues with the threads that it has. Without
    any, :meth:`put` calls the function. The pool has no futures, which cost a short task a tenth of its time.
    """

    def __init__(self, most: int, function: Callable[[T], None]) -> None:
        self._most, self._function = most, function
        self._waiting = SimpleQueue[T | None]()
        self._threads: list[threading.Thread] = []

    def put(self, item: T) -> None:
        """Call the function with it, as soon as a thread is free. For one thread."""
        if len(self._threads) < self._most:
            thread = threading.Thread(
                target=self._run, name=f"shardq-worker_{len(self._threads)}", daemon=True
            )
            try:
                thread.start()
                self._threads.append(thread)
            except RuntimeError as error:
                _log.warning("a worker runs %d of its %d threads: %s", len(self._threads), self._most, error)
                self._most = len(self._threads)
        if self._threads:
            self._waiting.put(item)
        else:
            self._function(item)

    def close(self) -> None:
        """Wait until the function has been called with everything, and end the threads."""
        self._waiting.put(None)
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        here = forks.count
        while (item := self._waiting.get()) is not None:
            self._function(item)
            if forks.count != here:  # a child that the function has forked ends with it
                return
        self._waiting.put(None)  # for the others, also one whose start was interrupted


class PrefetchLimit:
    """How many messages a worker holds, and how many more it may receive: those that it runs in half a second.

    The messages of a group keep a single thread busy, however many they are. So it holds of each group only the
    messages that one thread runs in that time, and receives more while threads are idle. After a message at its last
    attempt was received it may hold fewer: see :class:`HoldLimit`. With a ``batch`` each unit is a batch of up to this
    many messages, and as many are held as there are threads.
    """

    def __init__(self, threads: int, hold_limit: HoldLimit, batch: int | None = None) -> None:
        self._threads, self._runs = threads or MOST_AHEAD, threads or 1
        self._hold_limit, self._batch = hold_limit, batch
        self._lock = threading.Lock()
        self._changes = ChangeNotifier(self._lock)
        self._seconds = AHEAD_SECONDS  # that a message takes, as far as is known
        self.held = 0
        self._units = 0  # in which they are held: each keeps one thread busy
        self._ended = 0  # of those, which are to be settled

    def wait_until_free(self, seconds: float) -> int:
        """Return how many may be received: none, when there was no room for ``seconds``."""
        self._changes.wait_for(lambda: self._free > 0, seconds)
        return self._free

    def wait_for_less(self, held: int, seconds: float) -> None:
        """Sleep until fewer than ``held`` are held."""
        self._changes.wait_for(lambda: self.held < held, seconds)

    def take(self, count: int, units: int) -> None:
        """Count messages as held, in this number of units."""
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
        """How many messages begin at once, when they are put before all others."""
        with self._lock:
            return max(0, self._runs - self._units)

    @property
    def of_a_group(self) -> int:
        """How many messages of one group may be held."""
        with self._lock:
            return max(1, self._ahead(1))

    def limit(self, most: int | None) -> None:
        """Limit how many may be held because of received messages: see :meth:`HoldLimit.limit`."""
        with self._lock:
            self._hold_limit.limit(most)

    def ran(self, count: int, seconds: float) -> None:
        """Learn how long messages take that have been run."""
        with self._lock:
            self._ended += count
            self._seconds += (seconds / count - self._seconds) / 8

    def _ahead(self, threads: int) -> int:
        """Return how many messages this number of threads runs in half a second, as far as is known."""
        return min(MOST_AHEAD, int(AHEAD_SECONDS * threads / max(self._seconds, 0.0001)))

    @property
    def _free(self) -> int:
        if self._hold_limit.most is not None:
            return max(0, self._hold_limit.most - self.held)
        if self._batch is not None:
            return self._batch if self._units < self._threads else 0
        capacity = self._threads + self._ahead(self._threads)
        free = capacity - self.held
        if (idle := self._threads - self._units) > 0:
            return max(free, idle * max(1, self._ahead(1)))
        return free if 2 * free >= capacity else 0
