"""The tasks that a worker holds: those that have not begun, the outcomes of those that ran, and their settlement."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import Context
from functools import partial

from shardq.client.batch import Batch
from shardq.client.outcome import DeadLetter, Outcome, Retry, Snooze
from shardq.client.queue import Queue
from shardq.core.message import Message
from shardq.errors import QueueFull, QueueNotFound, QueuePaused, ShardqError
from shardq.tasks.advancing import Seen, advance
from shardq.tasks.entries import NAME, Decided, Entry, headers_of, is_step_message, kept_seconds, result_id
from shardq.tasks.errors import Failure
from shardq.tasks.options import LONGEST_NAME
from shardq.tasks.result_backend import RESERVED_SECONDS, ResultBackend
from shardq.tasks.task_client import TaskClient
from shardq.worker.attempt import Ending
from shardq.worker.options import WorkerOptions
from shardq.worker.report import Tally
from shardq.worker.settling import AttemptSettling
from shardq.worker.threads import Unit, by_batch

__all__ = [
    "AGAIN_SECONDS",
    "ReservedTasks",
    "TaskUnit",
    "settle_all",
]

PATIENCE_SECONDS = 0.5  # for which a task waits in its worker before that is noted
AGAIN_SECONDS = 5.0  # until a task is delivered again whose begin or end could not be carried out


class ReservedTasks:
    """The tasks that one worker has received and not begun, so that others see that these wait. Safe for threads.

    A worker receives tasks before it can run them, and all that it holds is in flight in the store. Noting the begin
    of each would cost every task a request. So tasks that have waited in the worker for half a second are noted, once,
    and the note is removed when they begin. The same holds for tasks that have ended, and are settled with the rest of
    their groups. A note is for one delivery, and is kept for a minute: the notes of a dead worker hide nothing.
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
        """Add tasks that were received, or that have ended. They are noted after ``patience`` seconds."""
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


class TaskUnit(Unit):
    """Tasks that are run one after the other by one thread, and their outcomes."""

    def __init__(self, batch: Batch, part: Batch) -> None:
        super().__init__(batch, part)
        self.entries: dict[Message, Entry] = {}  # of tasks that have ended, as far as is known
        self.failures: dict[Message, Failure] = {}
        self.seconds: dict[Message, float] = {}  # for which each ran
        self.begun: set[Message] = set()  # whose steps were sent: they end when these do
        self.planned: set[Message] = set()
        """Those whose plans are stored at this delivery, which is not their last one."""
        self.contexts: dict[Message, Context] = {}
        """Those in which tasks ran, where hooks run around them: what follows a task is sent in the same one."""
        self.known: dict[str, Entry] | None = None  # what stood of its tasks when it was received

    def fail(self, message: Message, error: Exception, call: str) -> None:
        """Keep why a task failed: its error, or that which made it choose an outcome."""
        cause = error.__cause__ if isinstance(error, Outcome) and error.__cause__ else error
        self.failures[message] = Failure.of(cause, message.deliveries, call)

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
        """Let a task that has ended be delivered again soon: the steps after it cannot be sent now."""
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


def settle_all(
    units: Sequence[TaskUnit],
    queues: Mapping[str, Queue],
    task_client: TaskClient,
    options: WorkerOptions,
    tally: Tally,
    carry_out: Callable[[Callable[[], None]], bool],
) -> None:
    """Store the results of the tasks; then ack, release and dead-letter their messages.

    In this order: a worker that dies in between leaves a result that stands, and the next delivery finds it. Tasks
    that could not be stored are not acked: they are delivered again when their leases have expired. ``carry_out`` does
    a step, and repeats it while the store is unreachable; it returns False when the step was given up.
    """
    if not carry_out(partial(_decide, units, task_client)):
        return
    seen = Seen({result_id(step): unit.entries[step] for unit in units for step in unit.steps})
    advanced = [
        unit
        for unit in units
        if all(carry_out(partial(_continue_workflow, unit, step, task_client, seen)) for step in unit.steps)
    ]
    for batch, attempt in by_batch(advanced):
        if batch.queue is not None:
            for step in AttemptSettling(queues[batch.queue], attempt, options, tally).steps():
                carry_out(step)
    if tally.observer is not None:
        for unit in advanced:
            for message, outcome in unit.outcomes():
                name = str(headers_of(message).get(NAME))[:LONGEST_NAME]  # others may have written anything
                tally.observer.ran(name, outcome, unit.seconds.get(message))


def _decide(units: Sequence[TaskUnit], task_client: TaskClient) -> None:
    if decided := [each for unit in units for each in unit.decided()]:
        task_client.results.decide(decided)


def _continue_workflow(unit: TaskUnit, message: Message, task_client: TaskClient, seen: Seen) -> None:
    """Send the steps that waited for this one. A queue that takes none now does not hold up the worker."""
    context = unit.contexts.get(message)
    try:
        if context is None:
            advance(task_client, result_id(message), seen)
        else:
            context.run(advance, task_client, result_id(message), seen)
    except (QueuePaused, QueueFull) as error:
        unit.put_off(message, str(error))
