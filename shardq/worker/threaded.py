"""The part of a worker that runs messages in several threads, and receives while they run."""

from __future__ import annotations

import math
import threading
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Generic

from shardq.client.batch import Batch
from shardq.client.consumer import Consumer
from shardq.client.patterns import QueuePattern
from shardq.client.queue import Queue
from shardq.client.queue_internals import count_deliveries, receive_uncounted
from shardq.core.message import Message
from shardq.errors import Closed, ShardqError
from shardq.worker.attempt import Attempt
from shardq.worker.consuming import WorkerLoop
from shardq.worker.gate import HoldLimit, set_apart
from shardq.worker.options import WorkerOptions
from shardq.worker.report import WorkerReport
from shardq.worker.threads import EndedUnits, PrefetchLimit, ThreadPool, U, by_batch, first_of

__all__ = ["ThreadedLoop"]


WAIT_SECONDS = 5.0


class ThreadedLoop(WorkerLoop, Generic[U]):
    """Runs units of messages in ``threads`` threads, one after the other in the calling thread if there are 0.

    A message at its last attempt waits until nothing else is held, and is held alone. One that has a single attempt
    runs beside others, if it begins at once. One more thread settles together the units that have ended.
    """

    def __init__(
        self,
        queues: Mapping[str, Queue | QueuePattern],
        options: WorkerOptions,
        threads: int,
        batch: int | None = None,
    ) -> None:
        super().__init__(queues, options)
        self._threads, self._receives_beside = threads, True
        self._prefetch = PrefetchLimit(threads, HoldLimit(len(queues) + 2), batch)
        self._ended = EndedUnits[U]()
        self._interrupted = False

    @property
    def report(self) -> WorkerReport:
        """The counters of the worker so far. Any thread may read them."""
        report = super().report
        return self._prefetch.with_held(report) if self._receives_beside else report

    @abstractmethod
    def _last_of(self, batch: Batch) -> Sequence[Message]:
        """Return the messages of a batch that are at their last attempt."""

    @abstractmethod
    def _units_of(self, batch: Batch) -> Sequence[U]:
        """Return the units in which a batch is run. Messages that are in none are released."""

    @abstractmethod
    def _run_unit(self, unit: U) -> None:
        """Run the messages of a unit, and note the outcome of each."""

    def _settle_ended(self, units: Sequence[U]) -> None:
        """Settle units that have ended, those of a batch together."""
        for batch, attempt in by_batch(units):
            if batch.queue is not None:
                self._settle_all(self._queues[batch.queue], attempt, self._tally)

    def _begins(self, units: Sequence[U]) -> None:
        """Do the work before units wait for a thread."""

    def _ran(self, unit: U) -> None:
        """Do the work after a unit has run."""

    def _do_periodic_work(self) -> float:
        """Do the periodic work; returns for how many seconds at most it may wait."""
        return WAIT_SECONDS

    def _is_alone(self, kept: Batch) -> bool:  # noqa: ARG002 - for those who have to note it
        """Wait until all messages that are held have ended and are settled. False: the worker was stopped meanwhile."""
        while self._prefetch.held and not self._stopping:
            self._do_periodic_work()
            self._prefetch.wait_for_less(1, 0.5)
        return not self._prefetch.held

    def _interrupt(self) -> None:
        """Begin no further messages: those that wait for a thread or a permit are released."""
        self._interrupted = True

    def _is_stopping(self) -> bool:
        return self._interrupted or super()._is_stopping()

    def _consume(self) -> None:
        self._consumer = consumer = self._make_consumer()
        self._ended, self._interrupted = EndedUnits[U](), False
        threads = ThreadPool(self._threads, self._run)
        with ExitStack() as stack:
            stack.callback(self._close, consumer)
            if self._threads:
                settling = threading.Thread(target=self._settle, name="shardq-settling", daemon=True)
                settling.start()
                stack.callback(settling.join)
            stack.callback(self._ended.close)
            stack.callback(threads.close)
            try:
                self._receive(consumer, threads)
            except BaseException:
                self._interrupt()
                raise

    def _receive(self, consumer: Consumer, threads: ThreadPool[U]) -> None:
        """Receive as much as there is room for, until there is nothing any more."""
        idle_exit, faults = self._options.idle_exit, 0
        idle_since = time.monotonic()
        while not self._stopping:
            longest = self._do_periodic_work()
            if (free := self._prefetch.wait_until_free(0.5)) == 0:
                idle_since = time.monotonic()
                continue
            left = WAIT_SECONDS if idle_exit is None else max(0.0, idle_since + idle_exit - time.monotonic())
            # Before the read, which does not see what those send that end meanwhile.
            held = self._prefetch.held
            try:
                # A message that kills the process must not make dead letters of what is just being received.
                receive = partial(receive_uncounted, consumer) if held else consumer.receive
                batch = receive(min(free, self._options.batch), wait=min(left, longest))
                faults = 0
            except ShardqError as error:
                faults += 1
                self._wait_for_store(error, faults)
                continue
            if units := self._take(consumer, batch):
                self._begin(units, threads)
            if batch:
                idle_since = time.monotonic()
                self._tally.add(batches=1)
            elif held:
                idle_since = time.monotonic()
                self._prefetch.wait_for_less(held, 0.5)
            elif idle_exit is not None and time.monotonic() - idle_since >= idle_exit:
                return

    def _take(self, consumer: Consumer, batch: Batch) -> Sequence[U]:
        """Return the messages of a batch that are to be run.

        Their deliveries are counted then, the rest is released uncounted. A message at its last attempt waits,
        uncounted, until nothing else is held. One that has a single attempt is taken when it begins at once.
        """
        last = self._last_of(batch) if batch else ()
        tried = next((message for message in last if message.deliveries > 1), None)
        if tried is not None:
            kept, rest = set_apart(batch, tried)
            units = self._units_of(kept)
        else:
            units, rest = self._at_once(batch, last)
        self._prefetch.limit(None if not last else 1 if tried is not None else self._threads or 1)
        if rest is not None:
            self._return_uncounted(rest)
        if tried is not None and not self._is_alone(kept):
            self._return_uncounted(kept)
            return []
        return units if self._persist(partial(count_deliveries, consumer, batch)) else []

    def _at_once(self, batch: Batch, last: Sequence[Message]) -> tuple[Sequence[U], Batch | None]:
        """Return the units to run, and the rest. As many of those in ``last`` run first as threads are free."""
        units = self._units_of(batch) if batch else []
        if last:
            begun, others, chosen = list[U](), list[U](), frozenset(last)
            for unit in units:
                (others if chosen.isdisjoint(unit.attempt.batch) else begun).append(unit)
            units = [first_of(unit) for unit in begun[: self._prefetch.at_once]] + others
        if sum(len(unit.attempt.batch) for unit in units) == len(batch):
            return units, None
        kept = {message for unit in units for message in unit.attempt.batch}
        rest = [message for message in batch if message not in kept]
        return units, batch.part(rest) if rest else None

    def _begin(self, units: Sequence[U], threads: ThreadPool[U]) -> None:
        self._prefetch.take(sum(len(unit.attempt.batch) for unit in units), len(units))
        self._open.update(unit.attempt for unit in units)
        self._begins(units)
        for unit in units:
            if self._threads:
                threads.put(unit)
            else:
                unit.received_at = -math.inf  # one task may cancel another, which is seen at once
                self._run(unit)
        if self._is_forked:  # without threads the child comes back here: the messages are the parent's
            raise self._error or Closed("this worker is the parent's: a forked child cannot use it")
        if not self._threads:
            self._settle_units(self._ended.take(wait=False))

    def _run(self, unit: U) -> None:
        began = time.monotonic()
        try:
            self._run_unit(unit)
        except BaseException as error:
            # The handler wants the process to end, or the store of a semaphore is unreachable.
            self._end_with(error)
        finally:
            if not self._is_forked:  # there the messages are the parent's, and others may have had the locks
                self._ran(unit)
                self._prefetch.ran(len(unit.attempt.batch), time.monotonic() - began)
                self._ended.put(unit)

    def _settle(self) -> None:
        while units := self._ended.take():
            self._settle_units(units)

    def _settle_units(self, units: Sequence[U]) -> None:
        try:
            self._settle_ended(units)
        except BaseException as error:
            self._end_with(error)
        finally:
            self._open.difference_update(unit.attempt for unit in units)
            self._prefetch.give(sum(len(unit.attempt.batch) for unit in units), len(units))

    def _settle_beside(self, attempt: Attempt) -> None:
        """Settle the messages that no handler works on. Where all of it has ended, the thread for that does."""
        if not self._receives_beside or attempt.running or attempt.unstarted:
            super()._settle_beside(attempt)
