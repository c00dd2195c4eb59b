"""Settling tasks that have ended: what became of them is stored, what waited for them is sent, and they are acked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from shardq.base.waits import ChangeNotifier
from shardq.batch import Batch
from shardq.errors import QueueFull, QueuePaused
from shardq.message import Message
from shardq.queue import Queue
from shardq.tasks.advancing import Seen, advance
from shardq.tasks.binding import Binding
from shardq.tasks.work_unit import Unit, ledger_id
from shardq.worker.attempt import Attempt
from shardq.worker.options import WorkerOptions
from shardq.worker.report import Tally
from shardq.worker.settling import AttemptSettling

__all__ = ["Ended", "is_done", "settle_all"]

Persist = Callable[[Callable[[], None]], None]
"""Carries out a step, and repeats it while the store is away."""


class Ended:
    """Units that have run, for the thread that settles them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changes = ChangeNotifier(self._lock)
        self._units: list[Unit] = []
        self._closed = False

    def put(self, unit: Unit) -> None:
        """Add one."""
        with self._lock:
            self._units.append(unit)
        self._changes.notify_all()

    def take(self, *, wait: bool = True) -> list[Unit]:
        """All that there are. Waits for one; the list is empty when it is closed and there is none."""
        if wait:
            self._changes.wait_for(lambda: self._units or self._closed)
        with self._lock:
            units, self._units = self._units, []
            return units

    def close(self) -> None:
        """Nothing more comes."""
        self._closed = True
        self._changes.notify_all()


def settle_all(
    units: Sequence[Unit],
    queues: Mapping[str, Queue],
    binding: Binding,
    options: WorkerOptions,
    tally: Tally,
    persist: Persist,
) -> None:
    """Store what became of the tasks; then ack, release and dead-letter their messages.

    In this order: a worker that dies in between leaves a result that stands, and the next delivery finds it.
    What could not be stored is not acked: it is delivered again when its lease is over.
    """
    if not is_done(persist, partial(_decide, units, binding)):
        return
    seen = Seen({ledger_id(step): unit.entries[step] for unit in units for step in unit.steps})
    for unit in units:
        if not all(is_done(persist, partial(_go_on, unit, step, binding, seen)) for step in unit.steps):
            return
    for batch, attempt in _by_batch(units):
        if batch.queue is not None:
            for step in AttemptSettling(queues[batch.queue], attempt, options, tally).steps():
                persist(step)


def is_done(persist: Persist, step: Callable[[], None]) -> bool:
    """Carry out a step; False when it was given up, because the worker is told to stop while the store is away."""
    done: list[bool] = []

    def run() -> None:
        step()
        done.append(True)

    persist(run)
    return bool(done)


def _decide(units: Sequence[Unit], binding: Binding) -> None:
    if decided := [each for unit in units for each in unit.decided()]:
        binding.results.decide(decided)


def _go_on(unit: Unit, message: Message, binding: Binding, seen: Seen) -> None:
    """Send the steps that waited for this one. A queue that takes none now does not hold up the worker."""
    try:
        advance(binding, ledger_id(message), seen)
    except (QueuePaused, QueueFull) as error:
        unit.put_off(message, str(error))


def _by_batch(units: Sequence[Unit]) -> list[tuple[Batch, Attempt]]:
    """What became of the messages of each batch, in one attempt: they are settled together."""
    parts: dict[Batch, list[Attempt]] = {}
    for unit in units:
        parts.setdefault(unit.batch, []).append(unit.attempt)
    return [(batch, _joined(batch, attempts)) for batch, attempts in parts.items()]


def _joined(batch: Batch, attempts: Sequence[Attempt]) -> Attempt:
    joined = Attempt(batch.part(message for each in attempts for message in each.batch))
    joined.started = len(joined.batch)
    for each in attempts:
        joined.finished += each.finished
        joined.endings += each.endings
        joined.interrupted += each.interrupted
        joined.held_back += [*each.held_back, *each.unstarted]
    return joined
