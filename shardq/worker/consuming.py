"""The loop of a worker, and the queues that it works on, some of which patterns stand for.

It continues while the store is unreachable, and ends when it is stopped.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast

from shardq.base.log import Log
from shardq.base.patterns import NamePattern, is_pattern
from shardq.client import Client
from shardq.client.batch import Batch
from shardq.client.consumer import Consumer
from shardq.client.outcome import Backoff
from shardq.client.patterns import QueuePattern
from shardq.client.queue import Queue
from shardq.client.queue_internals import at_last_delivery, consumer_of, observer_of, queue_of, unless
from shardq.client.semaphore import Semaphore
from shardq.core.message import Message
from shardq.errors import QueueNotFound, ShardqError
from shardq.storage.per_process import forks
from shardq.worker.attempt import Attempt
from shardq.worker.gate import open_gate, permit_gate
from shardq.worker.options import WorkerOptions
from shardq.worker.report import Tally, WorkerReport
from shardq.worker.settling import AttemptSettling

if TYPE_CHECKING:
    from shardq.worker.loop import CoroutineLoop

__all__ = ["ByQueue", "WorkedQueues", "WorkerLoop", "follows", "opened"]

T = TypeVar("T")

_log = Log(__name__)

PAUSE_SLICE_SECONDS = 0.1  # a stop is noticed within this time
ABANDONED_SECONDS = 1.0  # until a message is delivered again whose handler is killed: it has ended by then
LEAVE_SECONDS = 5.0  # for settling after a stop, and for leaving; leases expire automatically


def opened(client: Client, name: str) -> Queue | QueuePattern:
    """Return a queue that exists, or the queues that a pattern matches. Raises InvalidName or QueueNotFound."""
    return client.pattern(name) if is_pattern(name) else client.queue(name)


def follows(queues: Mapping[str, object]) -> bool:
    """Return whether some of the queues are those that a pattern matches."""
    return any(map(is_pattern, queues))


class ByQueue(dict[str, T]):
    """Values that were given for queues and patterns.

    A queue that is not named has the value of the first pattern that matches.
    """

    def __missing__(self, name: str) -> T:
        for text, each in list(self.items()):
            if is_pattern(text) and NamePattern.parse(text).matches(name):
                self[name] = each
                return each
        raise KeyError(name)


class WorkedQueues(dict[str, Queue]):
    """The queues of a worker by name; of those that a pattern matches, each that its consumer has received from.

    A pattern is in it under its text, as what knows the store.
    """

    def __init__(self, queues: Mapping[str, Queue | QueuePattern]) -> None:
        super().__init__(cast("Mapping[str, Queue]", queues))
        self._opened: Callable[[str], Queue] | None = None

    def receive_by(self, consumer: Consumer) -> Consumer:
        """Open further queues as this consumer has opened them, without a request; returns the consumer."""
        self._opened = lambda name: queue_of(consumer, name)
        return consumer

    def __missing__(self, name: str) -> Queue:
        if self._opened is None:
            raise KeyError(name)
        return self._opened(name)


class WorkerLoop(ABC):
    """Consumes until it is stopped. A subclass receives the messages and works on them."""

    def __init__(self, queues: Mapping[str, Queue | QueuePattern], options: WorkerOptions) -> None:
        self._queues, self._options = WorkedQueues(queues), options
        self._tally = Tally(observer_of(next(iter(queues.values()))))
        self._stopping = False
        self._open = set[Attempt]()  # with messages that are not settled
        self._runs_in = forks.count
        self._leave_by = math.inf
        self._error: BaseException | None = None  # that ends the worker once the messages at hand are settled
        self._semaphore: Semaphore | None = None
        self._gate = open_gate(self._is_stopping)
        self._consumer: Consumer | None = None
        self._loop: CoroutineLoop | None = None  # of handlers or tasks that are async functions
        self.on_settled: Callable[[], None] | None = None  # called when the first message is settled

    @property
    def report(self) -> WorkerReport:
        """The counters of the worker so far. Any thread may read them."""
        return self._tally.read()

    def run(self) -> WorkerReport:
        """Work until :meth:`stop`, or until nothing was due for ``idle_exit`` seconds and nothing runs.

        Raises an error that waiting cannot fix, such as QueueNotFound. A KeyboardInterrupt is raised after the messages
        at hand are settled: finished messages are acked, the others are released.
        """
        self._runs_in, self._error = forks.count, None
        try:
            self._consume_until_stopped()
        finally:
            if self._loop is not None and not self._is_forked:  # its thread is the parent's
                self._loop.close()
        if self._error is not None:
            raise self._error
        return self.report

    def _consume_until_stopped(self) -> None:
        faults = 0  # of the store, in a row
        while not self._stopping:
            batches = self.report.batches
            try:
                self._open_gate()
                self._log_pauses()
                self._consume()
                break
            except ShardqError as error:
                faults = 1 if self.report.batches > batches else faults + 1
                self._wait_for_store(error, faults)

    def stop(self) -> None:
        """End after the message at hand and release the others. For signal handlers and other threads.

        Where the store is unreachable, the worker tries for 5 seconds. Messages that are not settled then are
        delivered again when their leases expire.
        """
        self._stopping = True
        if self._consumer is not None:
            self._consumer.stop()

    def abandon(self) -> None:
        """Release the messages of a handler that does not end: this process is about to be killed.

        For another thread, after :meth:`stop`. Finished messages are acked, and messages that are not begun are
        released uncounted. The handler's messages are delivered again a second later. Gives up after 5 seconds.
        """
        self._leave_by = math.inf
        for attempt in list(self._open):
            if running := attempt.running:
                self._carry_out(partial(attempt.batch.part(running).release, delay=ABANDONED_SECONDS))
            self._settle_beside(attempt)

    def _settle_beside(self, attempt: Attempt) -> None:
        """Settle the messages that no handler works on."""
        self._settle_all(self._queues[attempt.batch[0].queue], attempt, self._tally)

    @abstractmethod
    def _consume(self) -> None:
        """Receive and work until it is stopped, or until nothing was due for ``idle_exit`` seconds."""

    def _at_last_delivery(self, batch: Batch) -> Message | None:
        with suppress(ShardqError):
            return at_last_delivery(batch)
        found: list[Message | None] = []  # its settings have to be read again
        self._persist(lambda: found.append(at_last_delivery(batch)))
        return found[0] if found else None

    def _return_uncounted(self, rest: Batch) -> None:
        """Release messages that are not begun, uncounted. The report leaves them out: they are received again."""
        assert rest.queue is not None
        self._settle_all(self._queues[rest.queue], Attempt(rest), Tally())

    def _open_gate(self) -> None:
        name = self._options.semaphore
        if name is not None and self._semaphore is None:
            self._semaphore = next(iter(self._queues.values())).semaphore(name)
            self._gate = permit_gate(
                self._semaphore, self._is_stopping, lambda: self._tally.add(permit_waits=1)
            )

    def _make_consumer(self) -> Consumer:
        options, (first, *others) = self._options, self._queues.values()
        if not others and not follows(self._queues):
            return first.consumer(
                codec=options.body_codec, keep_leases=options.keep_leases, prefetch=options.prefetch
            )
        consumer = consumer_of(
            (first, *others),
            weights=options.weights,
            order=options.order,
            codec=options.body_codec,
            keep_leases=options.keep_leases,
            prefetch=options.prefetch,
        )
        return self._queues.receive_by(consumer)

    def _log_pauses(self) -> None:
        for name, queue in self._queues.items():
            try:
                if not is_pattern(name) and queue.settings.delivery_paused:
                    _log.warning("queue %s is paused: waiting for `shardq resume %s`", name, name)
            except QueueNotFound:
                if len(self._queues) == 1:
                    raise  # one of several is left out by the consumer

    def _settle_all(self, queue: Queue, attempt: Attempt, tally: Tally) -> None:
        for step in AttemptSettling(queue, attempt, self._options, tally).steps():
            self._carry_out(step)

    def _carry_out(self, step: Callable[[], None]) -> bool:
        """Repeat a step of settling as `_persist` does. An error of it ends the worker after all other steps."""
        try:
            done = self._persist(step)
        except BaseException as error:
            self._end_with(error)
            return False
        if (call := self.on_settled) is not None and self._tally.read().settled:
            self.on_settled = None
            call()
        return done

    def _end_with(self, error: BaseException) -> None:
        """End the worker with an error, which is raised when the messages at hand are settled."""
        if isinstance(error, ShardqError) and error.retryable:
            _log.warning("messages were not begun or settled: %s", error)
            return
        self._error = self._error or error
        self.stop()

    def _persist(self, step: Callable[[], None]) -> bool:
        """Repeat a step of settling until it succeeds; the lease keeper holds the messages meanwhile.

        A stopped worker repeats it once more. Returns False when it was given up.
        """
        attempt = 0
        while True:
            try:
                with self._leaving():
                    step()
                    return True
            except ShardqError as error:
                if isinstance(error, QueueNotFound) and (len(self._queues) > 1 or follows(self._queues)):
                    _log.warning("messages were not settled: %s", error)
                    return False
                if not error.retryable:
                    raise
                if self._stopping:
                    _log.warning(
                        "messages were not settled: they are delivered again when their leases expire: %s",
                        error,
                    )
                    return False
                attempt += 1
                self._wait_for_store(error, attempt)

    def _wait_for_store(self, error: ShardqError, attempt: int) -> None:
        if not error.retryable:
            raise error
        self._tally.add(store_faults=1)
        pause = Backoff(1.0, 30.0).delay(attempt)
        _log.warning("trying again in %.1f seconds: %s", pause, error)
        until = time.monotonic() + pause
        while not self._stopping and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, PAUSE_SLICE_SECONDS))

    def _close(self, consumer: Consumer) -> None:
        with self._leaving():
            consumer.close()

    def _leaving(self) -> AbstractContextManager[None]:
        """Limit the requests in the block: a stopped worker makes none when its seconds for leaving have passed."""
        return unless(next(iter(self._queues.values())), self._has_left)

    def _has_left(self) -> bool:
        if self._stopping and self._leave_by == math.inf:
            self._leave_by = time.monotonic() + LEAVE_SECONDS
        return time.monotonic() > self._leave_by

    def _is_stopping(self) -> bool:
        return self._stopping or self._is_forked

    @property
    def _is_forked(self) -> bool:
        """True in a child that a handler has forked, and that came back here: it is not a worker."""
        return forks.count != self._runs_in
