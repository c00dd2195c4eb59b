"""The messages that a worker holds: those that have not begun, the units in which they run, and their settlement."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial

from shardq.base.waits import ChangeNotifier
from shardq.batch import Batch
from shardq.errors import QueueFull, QueueNotFound, QueuePaused, ShardqError
from shardq.message import Message
from shardq.outcome import DeadLetter, Outcome, Retry, Snooze
from shardq.queue import Queue
from shardq.queue_internals import one_by_one
from shardq.tasks.advancing import Seen, advance
from shardq.tasks.binding import Binding
from shardq.tasks.entries import NAME, Decided, Entry, headers_of, is_step_message, kept_seconds, result_id
from shardq.tasks.errors import Failure
from shardq.tasks.options import LONGEST_NAME
from shardq.tasks.result_backend import RESERVED_SECONDS, ResultBackend
from shardq.worker.attempt import Attempt, Ending
from shardq.worker.options import WorkerOptions
from shardq.worker.report import Tally
from shardq.worker.settling import AttemptSettling

__all__ = [
    "AGAIN_SECONDS",
    "EndedUnits",
    "ReservedTasks",
    "Unit",
    "first_of",
    "is_done",
    "settle_all",
    "units_of",
]

Persist = Callable[[Callable[[], None]], None]
"""Carries out a step, and repeats it while the store is unreachable."""

PATIENCE_SECONDS = 0.5  # for which a task waits in its worker before that is noted
AGAIN_SECONDS = 5.0  # until a task is delivered again whose begin or end could not be carried out


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


class Unit:
    """Messages of one batch that are run one after the other by one thread."""

    def __init__(self, batch: Batch, part: Batch) -> None:
        self.batch, self.attempt = batch, Attempt(part)
        self.entries: dict[Message, Entry] = {}  # of tasks that have ended, as far as is known
        self.failures: dict[Message, Failure] = {}
        self.seconds: dict[Message, float] = {}  # for which each ran
        self.begun: set[Message] = set()  # whose steps were sent: they end when these do
        self.planned: set[Message] = set()
        """Those whose plans are stored at this delivery, which is not their last one."""
        self.known: dict[str, Entry] | None = None  # what stood of its tasks when it was received
        self.received_at = time.monotonic()

    def fail(self, message: Message, error: Exception, call: str) -> None:
        """Keep why a task failed: its error, or that which made it choose an outcome."""
        told = error.__cause__ if isinstance(error, Outcome) and error.__cause__ else error
        self.failures[message] = Failure.of(told, message.deliveries, call)

    def decided(self) -> list[Decided]:
        """Return the entries of those of its tasks that have ended for good, and are to have one."""
        for ending in self.attempt.endings:
            dead = isinstance(ending.outcome, DeadLetter)
            if dead or (isinstance(ending.outcome, Retry) and _is_last(ending.message)):
                self._fail(ending.message, ending.reason)
        for message in self.attempt.finished:
            if message not in self.entries and message not in self.begun:
                self._fail(message, "discarded")
        return [
            Decided(result_id(message), entry, keep)
            for message, entry in self.entries.items()
            if (keep := kept_seconds(message)) > 0
        ]

    @property
    def steps(self) -> list[Message]:
        """Those of its tasks that have ended for good and are steps of workflows."""
        return [message for message in self.entries if is_step_message(message)]

    def outcomes(self) -> Iterator[tuple[Message, str]]:
        """Yield what has become of the attempt at each of its tasks, once that is decided."""
        for message, entry in self.entries.items():
            yield message, entry.state
        for message in self.begun - self.entries.keys():
            yield message, "begun"
        for ending in self.attempt.endings:
            if ending.message not in self.entries:
                yield ending.message, "retried" if isinstance(ending.outcome, Retry) else "put_off"

    def put_off(self, message: Message, reason: str) -> None:
        """Let a task that has ended be delivered again soon: what comes after it cannot be sent now."""
        attempt = self.attempt
        attempt.finished = [each for each in attempt.finished if each != message]
        attempt.endings = [each for each in attempt.endings if each.message != message]
        attempt.endings.append(Ending(message, Snooze(AGAIN_SECONDS), reason))

    def _fail(self, message: Message, reason: str) -> None:
        known = self.failures.get(message) or Failure("", reason, deliveries=message.deliveries)
        seconds = self.seconds.get(message)
        self.entries.setdefault(message, Entry("failed", failure=known, seconds=seconds))


def _is_last(message: Message) -> bool:
    """Return True at the last delivery of a message; also where its queue was deleted, and so the message."""
    try:
        return message.last_delivery
    except QueueNotFound:
        return True


def units_of(batch: Batch, of_a_group: int) -> list[Unit]:
    """Return units of a batch: of each message alone, and of the first few of each group, which run in their order."""
    if all(message.lane is None for message in batch):
        return [Unit(batch, part) for part in one_by_one(batch)]
    parts: dict[object, list[Message]] = {}
    for place, message in enumerate(batch):
        parts.setdefault(place if message.lane is None else message.lane, []).append(message)
    return [Unit(batch, batch.part(messages[:of_a_group])) for messages in parts.values()]


def first_of(unit: Unit) -> Unit:
    """Return a unit of the first of its messages alone."""
    return unit if len(unit.attempt.batch) == 1 else Unit(unit.batch, unit.batch.part(unit.attempt.batch[:1]))


class EndedUnits:
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
        """Return all that there are. Waits for one; the list is empty when it is closed and there is none."""
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
    What could not be stored is not acked: it is delivered again when its lease has expired.
    """
    if not is_done(persist, partial(_decide, units, binding)):
        return
    seen = Seen({result_id(step): unit.entries[step] for unit in units for step in unit.steps})
    for unit in units:
        if not all(is_done(persist, partial(_go_on, unit, step, binding, seen)) for step in unit.steps):
            return
    for batch, attempt in _by_batch(units):
        if batch.queue is not None:
            for step in AttemptSettling(queues[batch.queue], attempt, options, tally).steps():
                persist(step)
    if tally.observer is not None:
        for unit in units:
            for message, outcome in unit.outcomes():
                name = str(headers_of(message).get(NAME))[:LONGEST_NAME]  # others may have written anything
                tally.observer.ran(name, outcome, unit.seconds.get(message))


def is_done(persist: Persist, step: Callable[[], None]) -> bool:
    """Carry out a step; False when it was given up: the worker is told to stop while the store is unreachable."""
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
        advance(binding, result_id(message), seen)
    except (QueuePaused, QueueFull) as error:
        unit.put_off(message, str(error))


def _by_batch(units: Sequence[Unit]) -> list[tuple[Batch, Attempt]]:
    """Return what became of the messages of each batch, in one attempt: they are settled together."""
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
