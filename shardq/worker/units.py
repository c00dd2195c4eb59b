"""The units in which a worker runs messages in several threads, and the outcomes of those of a batch together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from shardq.base.waits import ChangeNotifier
from shardq.client.batch import Batch
from shardq.client.queue_internals import chains_of, one_by_one
from shardq.worker.attempt import Attempt

__all__ = ["EndedUnits", "U", "Unit", "by_batch", "first_of", "units_of"]


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
