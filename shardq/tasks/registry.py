"""The tasks of an application by their names, and the client by which they are sent."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any, NamedTuple

from shardq.base.callables import loading
from shardq.base.texts import kind_of, shown
from shardq.client import Client, check_client, connect
from shardq.errors import InvalidSetting
from shardq.storage.per_process import OwnLock
from shardq.tasks.arguments import Arguments
from shardq.tasks.calling import Middleware, check_middleware
from shardq.tasks.entries import WORKFLOW
from shardq.tasks.options import TaskOptions
from shardq.tasks.task_client import TaskClient

__all__ = ["TaskDefinition", "TaskRegistry", "check_app", "tasks_named"]


class TaskDefinition:
    """The definition of a task for sending and running: its name, function, way to write arguments, and app."""

    app: TaskRegistry
    name: str
    function: Callable[..., Any]
    arguments: Arguments
    settings: TaskOptions
    """The options of its decorator, and of :meth:`Task.options`."""


class TaskRegistry:
    """The tasks of an application by their names, and the client by which they are sent. Safe for threads."""

    def __init__(self, url: str | None = None, *, middleware: Sequence[Middleware] = ()) -> None:
        self.url, self.middleware = url, check_middleware(middleware)
        self._tasks: dict[str, TaskDefinition] = {}
        self._sources: dict[str, _Source] = {}  # of the same names
        self._task_client: TaskClient | None = None
        self._own: Client | None = None
        self._lock = OwnLock()

    @property
    def tasks(self) -> Mapping[str, TaskDefinition]:
        """The tasks by their names."""
        return dict(self._tasks)

    @property
    def queues(self) -> tuple[str, ...]:
        """The names of the queues of the tasks, sorted."""
        return tuple(sorted({each.settings.queue for each in self._tasks.values()}))

    @property
    def task_client(self) -> TaskClient:
        """The link between the tasks and a store. Raises InvalidSetting when none was named."""
        with self._lock.plain:
            if self._task_client is None:
                url = self.url or os.environ.get("SHARDQ_URL")
                if not url:
                    raise InvalidSetting(
                        "these tasks have no store: make them with Tasks(url), give them a client with "
                        "tasks.bind(client), or set SHARDQ_URL"
                    )
                self._own = self._own or connect(url)
                self._task_client = TaskClient(self._own, self._options_in)
            return self._task_client

    def bind(self, client: Client) -> None:
        """Send tasks by this client from now on. Results keep the one that they came by. The app never closes it."""
        check_client(client)
        with self._lock.plain:
            if self._task_client is None or self._task_client.client is not client:
                self._task_client = TaskClient(client, self._options_in)

    @contextmanager
    def bound(self, client: Client) -> Iterator[None]:
        """Send tasks by this client within the ``with`` block, and as before it afterwards. For tests."""
        before = self._task_client
        self.bind(client)
        try:
            yield
        finally:
            self._task_client = before

    def close(self) -> None:
        """Close the connections of these tasks. They can be sent again then. The client of :meth:`bind` stays."""
        with self._lock.plain:
            own, self._own = self._own, None
            if own is None:
                return
            if self._task_client is not None and self._task_client.client is own:
                self._task_client = None
            own.close()

    def _options_in(self, queue: str, others: Collection[str] = ()) -> dict[str, TaskOptions]:
        """Return the options of the tasks of a queue, and then of others that are sent there, by their names."""
        own = {name: each.settings for name, each in self._tasks.items() if each.settings.queue == queue}
        named = {name: self._tasks[name].settings for name in sorted(others) if name in self._tasks}
        return own | named

    def _register(self, task: TaskDefinition) -> None:
        if task.name == WORKFLOW:
            raise InvalidSetting(
                f"name={task.name!r} is what shardq calls workflows: give the task another name"
            )
        source = _source_of(task.function)
        with self._lock.plain:
            before = self._tasks.get(task.name)
            if before is not None and not source.may_replace(self._sources[task.name]):
                if before.function is not task.function or before.settings != task.settings:
                    raise InvalidSetting(_collision(task.name, self._sources[task.name], source))
                return
            self._check_limit(task)
            self._tasks[task.name], self._sources[task.name] = task, source
        task.arguments.warn_of_no_types()

    def _check_limit(self, task: TaskDefinition) -> None:
        options = task.settings
        others = [each.settings for each in self._tasks.values() if each.name != task.name]
        limits = {each.rate_limit for each in others if each.queue == options.queue}
        different = limits - {options.rate_limit, None}
        if different and options.rate_limit is not None:
            raise InvalidSetting(
                f"rate_limit={options.rate_limit!r}: queue {options.queue!r} has tasks of {different.pop()!r}, and the "
                "limit is one of the queue; give the task a separate queue"
            )


def check_app(tasks: object) -> None:
    """Raise InvalidSetting unless it is an app."""
    if not isinstance(tasks, TaskRegistry):
        raise InvalidSetting(f"tasks={shown(tasks)} is {kind_of(tasks)}: give what shardq.tasks.Tasks() made")


def tasks_named(name: str) -> TaskRegistry:
    """Return the app that ``package.module:app`` names, or the only one of the module. Raises InvalidSetting."""
    module, _, path = name.partition(":")
    if not module:
        raise InvalidSetting(f"tasks {name!r} name no module: give 'package.module', or 'package.module:app'")
    with loading("tasks", name):
        loaded = importlib.import_module(module)
        found = (
            [getattr(loaded, path)]
            if path
            else [each for each in vars(loaded).values() if isinstance(each, TaskRegistry)]
        )
    apps = list({id(each): each for each in found}.values())
    if len(apps) != 1 or not isinstance(apps[0], TaskRegistry):
        raise InvalidSetting(
            f"tasks {name!r} names {len(apps)} apps: give 'package.module:app', where app = shardq.tasks.Tasks()"
            if not path
            else f"tasks {name!r} is {kind_of(apps[0])}: name what shardq.tasks.Tasks() made"
        )
    if not apps[0].tasks:
        raise InvalidSetting(f"tasks {name!r} has no tasks: name the module that defines them")
    return apps[0]


class _Source(NamedTuple):
    """Where a task was defined, and in which execution of which module.

    It distinguishes a reload from a second task.
    """

    code: CodeType
    place: str  # of the function
    module: str  # whose execution made the task
    spec: object  # which the import system makes anew each time that it executes the module
    names: dict[str, Any] | None  # of that execution
    body: CodeType | None  # of the module, or of the cell of a notebook

    def may_replace(self, before: _Source) -> bool:
        """Return True when the module was loaded again, or an interactive session has defined the function again."""
        if self.module != before.module or self.spec is not before.spec:
            return self.module == before.module and self.spec is not None
        if self.names is not before.names:  # a script that was run again, or the text of a plugin
            return self._is_script and before._is_script
        return self.place == before.place and self.body is not before.body and self.code is not before.code

    @property
    def _is_script(self) -> bool:
        return self.spec is None and self.body is not None and self.body.co_filename == self.module


def _source_of(function: Any) -> _Source:
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - inspect has none that costs as little
    while frame is not None and not _is_module(frame):
        frame = frame.f_back
    code, place = function.__code__, f"{function.__module__}:{function.__qualname__}"
    if frame is None:  # in a thread
        return _Source(code, place, "", None, None, None)
    names = frame.f_globals
    module = str(names.get("__file__") or names.get("__name__"))
    return _Source(code, place, module, names.get("__spec__"), names, frame.f_code)


def _is_module(frame: FrameType) -> bool:
    return not frame.f_code.co_flags & inspect.CO_OPTIMIZED and frame.f_locals is frame.f_globals


def _collision(name: str, before: _Source, source: _Source) -> str:
    first, second = (f"{each.place} (line {each.code.co_firstlineno})" for each in (before, source))
    return (
        f"there are two tasks {name!r}, {first} and {second}: a worker could not distinguish them; give each a "
        "name, as "
        "in @tasks.task(name=...), or use task.options(...) for calls with other options"
    )
