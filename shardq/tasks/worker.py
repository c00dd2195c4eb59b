"""A worker of tasks: it receives while others run, several at a time, and settles what has ended together."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Unpack

from shardq.base.texts import kind_of, shown
from shardq.batch import Batch
from shardq.client import Client
from shardq.consumer import Consumer
from shardq.errors import Closed, InvalidSetting, ShardqError
from shardq.message import Message
from shardq.queue_internals import count_deliveries, receive_uncounted
from shardq.settings import check_number
from shardq.tasks.in_flight import (
    PATIENCE_SECONDS,
    EndedUnits,
    ReservedTasks,
    Unit,
    first_of,
    is_done,
    settle_all,
    units_of,
)
from shardq.tasks.registry import TaskRegistry, check_app
from shardq.tasks.result_backend import Upkeep
from shardq.tasks.runner import Runner
from shardq.tasks.threads import Loop, PrefetchLimit, ThreadPool
from shardq.worker import Worker
from shardq.worker.attempt import Attempt
from shardq.worker.gate import Caution, set_apart
from shardq.worker.matched import opened
from shardq.worker.options import LoopKeywords
from shardq.worker.report import WorkerReport, enable_loggers

__all__ = ["TaskWorker", "TaskWorkerKeywords", "check_names", "check_options"]

_log = logging.getLogger(__name__)
MAX_THREADS = 1_000
BATCH = 500  # tasks that are received together: as few requests as what is received ahead allows
WAIT_SECONDS = 5.0


class TaskWorkerKeywords(LoopKeywords, total=False):
    """The options of :class:`~shardq.worker.WorkerOptions` that a worker of tasks has. ``batch`` is 500 without it."""


class TaskWorker(Worker):
    """Runs the tasks of an app: ``threads`` at a time, plain functions in threads, async ones on one event loop.

    It receives further tasks while some run, and keeps the leases of those that it holds. What has become of a task is
    stored before its message is acked: whatever dies in between, the result stands, and the task does not run again. A
    task whose worker dies while it runs is run again. Before its last attempt it waits until the worker holds nothing
    else, and is held alone: it is no dead letter because another task has killed the process. A task that has a single
    attempt runs beside others.

    It ends as a :class:`~shardq.worker.Worker` does: by :meth:`stop`, after the tasks that run, or after ``idle_exit``
    seconds without any. With ``threads=0`` the tasks run in the thread that calls :meth:`run`. The queues are those of
    the tasks, or those that are named. The other options are those of :class:`~shardq.worker.WorkerOptions`.

    >>> import shardq.tasks
    >>> tasks = shardq.tasks.Tasks(url)
    >>> @tasks.task
    ... async def double(number: int) -> int:
    ...     return 2 * number
    >>> results = double.send_many(double.signature(number) for number in range(100))
    >>> TaskWorker(tasks, shardq.connect(url), threads=4, idle_exit=0).run().worked
    100
    >>> results[99].get()
    198
    """

    def __init__(
        self,
        tasks: TaskRegistry,
        client: Client,
        *,
        queues: Sequence[str] | None = None,
        threads: int = 1,
        **options: Unpack[TaskWorkerKeywords],
    ) -> None:
        check_number("threads", threads, 0, MAX_THREADS, whole=True)
        check_app(tasks)
        check_names(queues)
        check_options(options)
        if not (queues or tasks.tasks):
            raise InvalidSetting(
                "this app has no tasks: import the modules that define them before a worker is made"
            )
        tasks.bind(client)
        binding = tasks.binding
        chosen = (
            [opened(client, name) for name in queues]
            if queues
            else [binding.queue(name) for name in tasks.queues]
        )
        options.setdefault("batch", BATCH)
        super().__init__(chosen, print, **options)
        self._threads, self._binding = threads, binding
        self._loop = Loop()
        self._runner = Runner(tasks.tasks, tasks.middleware, binding, self._loop, stopping=self._is_stopping)
        self._reserved = ReservedTasks(binding.results)
        if threads:
            self._runner.begins = lambda message: self._reserved.remove([message])
            self._runner.ends = lambda message: self._reserved.add([message], 0.0)
        self._prefetch = PrefetchLimit(threads, Caution(len(chosen) + 2))
        self._error: BaseException | None = None
        self._upkeep = Upkeep(
            binding.results, beside=threads > 0, stopping=self._is_stopping, leaving=self._leaving
        )

    @property
    def report(self) -> WorkerReport:
        """What the worker has done so far. Any thread may read it."""
        return self._prefetch.with_held(super().report)

    def run(self) -> WorkerReport:
        """Work until :meth:`stop`, or until nothing was due for ``idle_exit`` seconds and nothing runs.

        Errors as in :meth:`shardq.worker.Worker.run`.
        """
        try:
            super().run()
        finally:
            if not self._is_forked:  # the thread of the loop is the parent's
                self._loop.close()
        if self._error is not None:
            raise self._error
        return self.report

    def _consume(self) -> None:
        self._open_gate()
        self._tell_of_pauses()
        consumer, self._ended = self._make_consumer(), EndedUnits()
        self._consumer = consumer
        settling = threading.Thread(target=self._settle, name="shardq-tasks-settling", daemon=True)
        if self._threads:
            settling.start()
        threads = ThreadPool(self._threads, self._run)
        try:
            self._receive(consumer, threads)
        finally:
            threads.close()
            self._upkeep.close()
            self._ended.close()
            if self._threads:
                settling.join()
            with self._leaving():
                consumer.close()

    def _receive(self, consumer: Consumer, threads: ThreadPool[Unit]) -> None:
        """Receive as much as there is room for, until there is nothing any more."""
        idle_exit, faults = self._options.idle_exit, 0
        idle_since = time.monotonic()
        while not self._stopping:
            enable_loggers(_log)
            self._upkeep.look()
            self._reserved.write_due()
            if (room := self._prefetch.wait_for_room(0.5)) == 0:
                idle_since = time.monotonic()
                continue
            left = WAIT_SECONDS if idle_exit is None else max(0.0, idle_since + idle_exit - time.monotonic())
            held = (
                self._prefetch.held
            )  # before the look, which does not see what those send that end meanwhile
            try:
                longest = PATIENCE_SECONDS if self._reserved.are_new else WAIT_SECONDS
                # A task that dies meanwhile must not make dead letters of what is just being received.
                receive = partial(receive_uncounted, consumer) if held else consumer.receive
                batch = receive(min(room, self._options.batch), wait=min(left, longest))
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
                if self._threads:
                    self._upkeep.finish()
                return

    def _take(self, consumer: Consumer, batch: Batch) -> list[Unit]:
        """Return what is to be run of a batch. The deliveries of that are counted then, the rest is released uncounted.

        A task at its last attempt waits, uncounted, until nothing else is held. One that has a single attempt is taken
        when it begins at once.
        """
        last = [message for message in batch if self._runner.is_last(message)]
        tried = next((message for message in last if message.deliveries > 1), None)
        if tried is not None:
            kept, rest = set_apart(batch, tried)
            units = units_of(kept, len(kept))
        else:
            units, rest = self._at_once(batch, last)
        self._prefetch.limit(None if not last else 1 if tried is not None else self._threads or 1)
        if rest is not None:
            self._give_back(rest)
        if tried is not None:
            self._reserved.add(kept)
            is_alone = self._holds_nothing()
            self._reserved.remove(kept)
            if not is_alone:
                self._give_back(kept)
                return []
        return units if is_done(self._persist, partial(count_deliveries, consumer, batch)) else []

    def _at_once(self, batch: Batch, last: Sequence[Message]) -> tuple[list[Unit], Batch | None]:
        """Return the units to run, and the rest. As many of those in ``last`` run first as threads are free."""
        units = units_of(batch, self._prefetch.of_a_group if self._threads else len(batch))
        if last:
            begun, others, chosen = list[Unit](), list[Unit](), frozenset(last)
            for unit in units:
                (others if chosen.isdisjoint(unit.attempt.batch) else begun).append(unit)
            units = [first_of(unit) for unit in begun[: self._prefetch.at_once]] + others
        if sum(len(unit.attempt.batch) for unit in units) == len(batch):
            return units, None
        kept = {message for unit in units for message in unit.attempt.batch}
        rest = [message for message in batch if message not in kept]
        return units, batch.part(rest) if rest else None

    def _holds_nothing(self) -> bool:
        """Wait until all that is held has ended and is settled. False: the worker was told to stop meanwhile."""
        while self._prefetch.held and not self._stopping:
            self._upkeep.look()
            self._reserved.write_due()
            self._prefetch.wait_for_less(1, 0.5)
        return not self._prefetch.held

    def _begin(self, units: Sequence[Unit], threads: ThreadPool[Unit]) -> None:
        self._prefetch.take(sum(len(unit.attempt.batch) for unit in units), len(units))
        self._open.update(unit.attempt for unit in units)
        self._runner.look(units)
        if self._threads:
            self._reserved.add(message for unit in units for message in unit.attempt.batch)
        for unit in units:
            if self._threads:
                threads.put(unit)
            else:
                unit.received_at = -math.inf  # one task may cancel another, which is seen at once
                self._run(unit)
        if self._is_forked:  # without threads the child comes back here: the messages are the parent's
            raise self._error or Closed("this worker is the parent's: a forked child cannot go on with it")
        if not self._threads:
            self._settle_units(self._ended.take(wait=False))

    def _run(self, unit: Unit) -> None:
        began = time.monotonic()
        try:
            self._runner.run(unit, self._tally, self._gate)
        except BaseException as error:
            # The task wants the process to end, or the store of a semaphore is unreachable.
            self._end_with(error)
        finally:
            if not self._is_forked:  # there the messages are the parent's, and others may have had the locks
                self._reserved.remove(unit.attempt.batch)
                self._prefetch.ran(len(unit.attempt.batch), time.monotonic() - began)
                self._ended.put(unit)

    def _settle(self) -> None:
        while units := self._ended.take():
            self._settle_units(units)

    def _settle_units(self, units: list[Unit]) -> None:
        try:
            settle_all(units, self._queues, self._binding, self._options, self._tally, self._persist)
        except BaseException as error:
            self._end_with(error)
        finally:
            self._open.difference_update(unit.attempt for unit in units)
            self._prefetch.give(sum(len(unit.attempt.batch) for unit in units), len(units))

    def _settle_beside(self, attempt: Attempt) -> None:
        """Release what is not begun. What has ended is settled with its result, by the thread for that."""
        if unstarted := attempt.unstarted:
            queue = self._queues[unstarted[0].queue]
            self._settle_all(queue, Attempt(attempt.batch.part(unstarted)), self._tally)

    def _end_with(self, error: BaseException) -> None:
        if isinstance(error, ShardqError) and error.retryable:
            _log.warning("tasks were not begun or settled: %s", error)
            return
        self._error = self._error or error
        self.stop()


def check_options(options: Mapping[str, object]) -> None:
    """Raise InvalidSetting for options that only workers of handlers have: ``prefetch`` would take groups apart."""
    if others := options.keys() - TaskWorkerKeywords.__annotations__.keys():
        raise InvalidSetting(
            f"{', '.join(sorted(others))}: workers of tasks have no such option; they receive ahead by themselves"
        )


def check_names(queues: object) -> None:
    """Raise InvalidSetting for what is no list of names of queues. Whether they exist is not asked."""
    if queues is not None and (isinstance(queues, str | bytes) or not isinstance(queues, Iterable)):
        raise InvalidSetting(
            f"queues={shown(queues)} is {kind_of(queues)}: give a list of names, such as ['tasks']"
        )
