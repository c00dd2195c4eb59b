"""Processes that run the tasks of an app: what ``shardq work --tasks`` starts."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, Unpack

from shardq.base.callables import loading
from shardq.base.wording import kind_of, shown
from shardq.client import Client
from shardq.errors import InvalidSetting
from shardq.settings import check_number
from shardq.tasks.app import Tasks
from shardq.tasks.worker import BATCH, MAX_THREADS, TaskWorker, TaskWorkerKeywords, check_names, check_options
from shardq.worker import PoolReport, WorkerOptions, WorkerPool
from shardq.worker.process import WorkerPlan
from shardq.worker.scaling import Processes

__all__ = ["TaskPlan", "TaskPool", "tasks_named"]


class TaskPlan(WorkerPlan, frozen=True, kw_only=True):
    """What a process of a pool of tasks is given to do."""

    tasks: str
    named: tuple[str, ...]
    threads: int

    @property
    def queues(self) -> tuple[str, ...]:
        """Those that were named, or those of all tasks."""
        return self.named or tasks_named(self.tasks).queues

    def worker(self, client: Client) -> TaskWorker:
        """The worker that the process runs."""
        options: Any = {name: getattr(self.options, name) for name in TaskWorkerKeywords.__annotations__}
        return TaskWorker(
            tasks_named(self.tasks), client, queues=self.named or None, threads=self.threads, **options
        )


class TaskPool(WorkerPool):
    """Runs a :class:`TaskWorker` in each of several processes, and replaces those that die.

    ``tasks`` is ``package.module:app``, or the module when it has one app only. Each process imports it, and runs
    ``threads`` tasks at a time. All else is as in :class:`~shardq.worker.WorkerPool`. The ``handler_timeout`` is of the
    process: while other threads of it finish tasks, one that hangs is not seen.

    >>> TaskPool(url, "shop.tasks", processes=4, threads=8, idle_exit=5).run()  # doctest: +SKIP
    """

    def __init__(
        self,
        url: str,
        tasks: str,
        *,
        queues: Sequence[str] | None = None,
        processes: Processes = 1,
        threads: int = 1,
        handler_timeout: float | None = None,
        max_restarts: int = 10,
        on_progress: Callable[[PoolReport], None] = lambda _: None,
        **options: Unpack[TaskWorkerKeywords],
    ) -> None:
        check_number("threads", threads, 1, MAX_THREADS, whole=True)
        check_names(queues)
        check_options(options)
        if not isinstance(tasks, str):
            raise InvalidSetting(
                f"tasks={shown(tasks)} is {kind_of(tasks)}: name them, as in 'package.module:app'"
            )
        options.setdefault("batch", BATCH)
        plan = TaskPlan(
            url=url,
            handlers={},
            options=WorkerOptions(**options),
            tasks=tasks,
            named=tuple(queues or ()),
            threads=threads,
        )
        self._begin(
            plan,
            processes=processes,
            handler_timeout=handler_timeout,
            max_restarts=max_restarts,
            on_progress=on_progress,
        )


def tasks_named(name: str) -> Tasks:
    """The app that ``package.module:app`` names, or the only one of ``package.module``. Raises InvalidSetting."""
    module, _, path = name.partition(":")
    if not module:
        raise InvalidSetting(f"tasks {name!r} name no module: give 'package.module', or 'package.module:app'")
    with loading("tasks", name):
        loaded = importlib.import_module(module)
        found = (
            [getattr(loaded, path)]
            if path
            else [each for each in vars(loaded).values() if isinstance(each, Tasks)]
        )
    apps = list({id(each): each for each in found}.values())
    if len(apps) != 1 or not isinstance(apps[0], Tasks):
        raise InvalidSetting(
            f"tasks {name!r} names {len(apps)} apps: give 'package.module:app', where app = shardq.tasks.Tasks()"
            if not path
            else f"tasks {name!r} is {kind_of(apps[0])}: name what shardq.tasks.Tasks() made"
        )
    if not apps[0].tasks:
        raise InvalidSetting(f"tasks {name!r} has no tasks: name the module that defines them")
    return apps[0]
