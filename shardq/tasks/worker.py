"""A worker of tasks: it receives while others run, several at a time, and settles ended ones together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Unpack

from shardq.base.texts import kind_of, shown
from shardq.client import Client
from shardq.client.batch import Batch
from shardq.client.consumer import Consumer
from shardq.client.queue_internals import hooks_of
from shardq.core.message import Message
from shardq.core.settings import check_number
from shardq.errors import InvalidSetting
from shardq.tasks.in_flight import PATIENCE_SECONDS, ReservedTasks, TaskUnit, settle_all
from shardq.tasks.registry import TaskRegistry, check_app
from shardq.tasks.result_backend import Upkeep
from shardq.tasks.runner import Runner
from shardq.worker.attempt import Attempt
from shardq.worker.consuming import opened
from shardq.worker.loop import CoroutineLoop
from shardq.worker.options import MAX_THREADS, LoopKeywords, WorkerOptions, assign
from shardq.worker.threaded import WAIT_SECONDS, ThreadedLoop
from shardq.worker.threads import ThreadPool, units_of

__all__ = ["TaskWorker", "TaskWorkerKeywords", "check_names", "check_options"]

BATCH = 500  # tasks that are received together: as few requests as what is received ahead allows


class TaskWorkerKeywords(LoopKeywords, total=False):
    """The options of :class:`~shardq.worker.WorkerOptions` that a worker of tasks has. ``batch`` is 500 without it."""


class TaskWorker(ThreadedLoop[TaskUnit]):
    """Runs the tasks of an app: ``threads`` at a time, plain functions in threads, async ones on one event loop.

    It receives further tasks while some run, and keeps the leases of those that it holds. The result of a task is
    stored before its message is acked. A crash in between leaves the result, and the task does not run again. A
    task whose worker dies while it runs is run again. Before its last attempt it waits until the worker holds nothing
    else, and is held alone. So it is not a dead letter because another task has killed the process. A task that has a
    single attempt runs beside others.

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

    _loop: CoroutineLoop

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
        task_client = tasks.task_client
        chosen = (
            [opened(client, name) for name in queues]
            if queues
            else [task_client.queue(name) for name in tasks.queues]
        )
        options.setdefault("batch", BATCH)
        checked = WorkerOptions(**options)
        assign([each.name for each in chosen], None, checked)  # which checks them
        super().__init__({each.name: each for each in chosen}, checked, threads)
        self._task_client, self._loop = task_client, CoroutineLoop()
        self._runner = self._make_runner(tasks)
        self._reserved = ReservedTasks(task_client.results)
        if threads:
            self._runner.begins = lambda message: self._reserved.remove([message])
            self._runner.ends = lambda message: self._reserved.add([message], 0.0)
        self._upkeep = Upkeep(
            task_client.results, beside=threads > 0, stopping=self._is_stopping, leaving=self._leaving
        )

    def _make_runner(
        self, tasks: TaskRegistry, on_error: Callable[[Exception], None] = lambda _: None
    ) -> Runner:
        return Runner(
            tasks.tasks,
            tasks.middleware,
            self._task_client,
            self._loop,
            on_error,
            hooks=hooks_of(next(iter(self._queues.values()))),
            stopping=self._is_stopping,
        )

    def _consume(self) -> None:
        try:
            super()._consume()
        finally:
            self._upkeep.close()

    def _receive(self, consumer: Consumer, threads: ThreadPool[TaskUnit]) -> None:
        super()._receive(consumer, threads)
        if self._threads and not self._stopping:
            self._upkeep.finish()

    def _do_periodic_work(self) -> float:
        self._upkeep.begin_if_due()
        self._reserved.write_due()
        return PATIENCE_SECONDS if self._reserved.are_new else WAIT_SECONDS

    def _last_of(self, batch: Batch) -> Sequence[Message]:
        return [message for message in batch if self._runner.is_last(message)]

    def _units_of(self, batch: Batch) -> Sequence[TaskUnit]:
        return units_of(batch, self._prefetch.of_a_group if self._threads else len(batch), TaskUnit)

    def _is_alone(self, kept: Batch) -> bool:
        self._reserved.add(kept)
        is_alone = super()._is_alone(kept)
        self._reserved.remove(kept)
        return is_alone

    def _begins(self, units: Sequence[TaskUnit]) -> None:
        self._runner.read_entries(units)
        if self._threads:
            self._reserved.add(message for unit in units for message in unit.attempt.batch)

    def _run_unit(self, unit: TaskUnit) -> None:
        self._runner.run(unit, self._tally, self._gate)

    def _ran(self, unit: TaskUnit) -> None:
        self._reserved.remove(unit.attempt.batch)

    def _settle_ended(self, units: Sequence[TaskUnit]) -> None:
        settle_all(units, self._queues, self._task_client, self._options, self._tally, self._carry_out)

    def _settle_beside(self, attempt: Attempt) -> None:
        """Release tasks that are not begun. Ended ones are settled with their results, by the thread for that."""
        if unstarted := attempt.unstarted:
            queue = self._queues[unstarted[0].queue]
            self._settle_all(queue, Attempt(attempt.batch.part(unstarted)), self._tally)


def check_options(options: Mapping[str, object]) -> None:
    """Raise InvalidSetting for options that only workers of handlers have: ``prefetch`` would take groups apart."""
    if others := options.keys() - TaskWorkerKeywords.__annotations__.keys():
        raise InvalidSetting(
            f"{', '.join(sorted(others))}: workers of tasks have no such option; they always receive ahead"
        )


def check_names(queues: object) -> None:
    """Raise InvalidSetting unless it is a list of names of queues. Whether they exist is not asked."""
    if queues is not None and (isinstance(queues, str | bytes) or not isinstance(queues, Iterable)):
        raise InvalidSetting(
            f"queues={shown(queues)} is {kind_of(queues)}: give a list of names, such as ['tasks']"
        )
