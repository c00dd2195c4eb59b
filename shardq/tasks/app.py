"""An app: the tasks of an application, which a client is given to when they are sent or run."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar, Unpack, overload

from shardq.client import Client, check_client, connect
from shardq.errors import InvalidSetting
from shardq.storage.per_process import OwnLock
from shardq.tasks.binding import Binding
from shardq.tasks.bulk import send_calls
from shardq.tasks.calling import Loop, Middleware, check_middleware, run_function
from shardq.tasks.current import CurrentTask
from shardq.tasks.listing import WorkflowState, WorkflowView, newest_workflows
from shardq.tasks.options import TaskKeywords, TaskOptions, make_options
from shardq.tasks.plans import WORKFLOW
from shardq.tasks.result import Result
from shardq.tasks.task import Signature, Task, TaskDecorator
from shardq.tasks.workflow_result import WorkflowResult
from shardq.worker import WorkerReport

if TYPE_CHECKING:
    from shardq.tasks.workflow import Workflow

__all__ = ["Tasks"]

P = ParamSpec("P")
T = TypeVar("T")


class Tasks:
    """The tasks of an application. A module makes one, and its functions tasks of it; nothing is opened by that.

    The store is that of ``url``; or that of :meth:`bind`; else that of the environment variable ``SHARDQ_URL``. It is
    opened when a task is sent. A worker gives the tasks that it runs its own client, so that they can send others.
    Safe for threads.

    >>> tasks = Tasks(url)
    >>> @tasks.task(queue="mail", retry=3, timeout=30)
    ... def welcome(user: str) -> str:
    ...     return f"Welcome, {user}!"
    >>> result = welcome.send("Ada")
    >>> tasks.drain().worked
    1
    >>> result.get(timeout=10)
    'Welcome, Ada!'
    """

    def __init__(self, url: str | None = None, *, middleware: Sequence[Middleware] = ()) -> None:
        self.url, self.middleware = url, check_middleware(middleware)
        self._tasks: dict[str, Task[Any, Any, Any]] = {}
        self._sources: dict[str, _Source] = {}  # of the same names
        self._binding: Binding | None = None
        self._own: Client | None = None
        self._lock = OwnLock()

    @overload
    def task(
        self, function: Callable[P, Coroutine[Any, Any, Signature[T]]], /
    ) -> Task[P, Coroutine[Any, Any, Signature[T]], T]: ...
    @overload
    def task(self, function: Callable[P, Signature[T]], /) -> Task[P, Signature[T], T]: ...
    @overload
    def task(self, function: Callable[P, Workflow], /) -> Task[P, Workflow, Any]: ...
    @overload
    def task(
        self, function: Callable[P, Coroutine[Any, Any, T]], /
    ) -> Task[P, Coroutine[Any, Any, T], T]: ...
    @overload
    def task(self, function: Callable[P, T], /) -> Task[P, T, T]: ...
    @overload
    def task(self, **options: Unpack[TaskKeywords]) -> TaskDecorator: ...
    def task(self, function: Any = None, /, **options: Any) -> Any:  # type: ignore[misc] # of mypy: options are keywords
        """Make a function a task, plain or async: ``@tasks.task`` or ``@tasks.task(queue="mail")``.

        The options are those of :class:`TaskOptions`. Raises InvalidSetting for a wrong one, for what is no function,
        and for a second task of the same name: tasks that a factory makes need a ``name=`` each. A module that is
        reloaded or imported again replaces its tasks. Warns of parameters without an annotation: a tuple arrives as a
        list there.
        """
        checked = make_options(options)

        def register(function: Callable[..., Any]) -> Task[Any, Any, Any]:
            made: Task[Any, Any, Any] = Task(self, function, checked)
            self._register(made)
            return made

        return register if function is None else register(function)

    @property
    def tasks(self) -> Mapping[str, Task[Any, Any, Any]]:
        """The tasks by their names."""
        return dict(self._tasks)

    @property
    def queues(self) -> tuple[str, ...]:
        """The names of the queues of the tasks, sorted."""
        return tuple(sorted({each.settings.queue for each in self._tasks.values()}))

    @property
    def binding(self) -> Binding:
        """What joins the tasks to a store. Raises InvalidSetting when none was named."""
        with self._lock.plain:
            if self._binding is None:
                url = self.url or os.environ.get("SHARDQ_URL")
                if not url:
                    raise InvalidSetting(
                        "these tasks have no store: make them with Tasks(url), give them a client with "
                        "tasks.bind(client), or set SHARDQ_URL"
                    )
                self._own = self._own or connect(url)
                self._binding = Binding(self._own, self._options_in)
            return self._binding

    def bind(self, client: Client) -> None:
        """Send tasks by this client from now on. Results keep the one that they came by. The app never closes it."""
        check_client(client)
        with self._lock.plain:
            if self._binding is None or self._binding.client is not client:
                self._binding = Binding(client, self._options_in)

    @contextmanager
    def bound(self, client: Client) -> Iterator[None]:
        """Send tasks by this client within the ``with`` block, and as before it afterwards. For tests."""
        before = self._binding
        self.bind(client)
        try:
            yield
        finally:
            self._binding = before

    def close(self) -> None:
        """Close what was opened for these tasks. They can be sent again then. The client of :meth:`bind` stays."""
        with self._lock.plain:
            own, self._own = self._own, None
            if own is None:
                return
            if self._binding is not None and self._binding.client is own:
                self._binding = None
            own.close()

    def send_many(self, calls: Iterable[Signature[T]]) -> list[Result[T]]:
        """Send calls of any tasks, those of one queue in bundles; returns their results in order.

        ``calls`` may be an iterator of any length: some thousands are drawn and stored at a time. Raises what
        :meth:`shardq.Producer.send_many` raises. When it fails after some were stored, also when the iterator raises,
        that is PartialSend: ``stored`` has the ids of all calls that are stored, ``unsent`` the messages of those that
        were drawn and are not, and the rest is still in the iterator.
        """
        return send_calls(self.binding, calls)

    def workflow(self, workflow_id: str) -> WorkflowResult:
        """The result of a workflow that was sent before, also by another program, by its id. Raises InvalidReceipt.

        Values have the types that the tasks of this app declare; those of tasks that it does not have are plain.
        """
        return WorkflowResult(self.binding, workflow_id, self.tasks)

    def workflows(
        self, *, state: WorkflowState | None = None, name: str | None = None, limit: int = 100
    ) -> list[WorkflowView]:
        """The newest ``limit`` workflows that a worker has begun, for as long as they are kept; the newest first.

        Those of a state, or of a name: the one that ``send(name=...)`` gave, or that of the first task. Workflows of
        other apps on the same store are among them. A state costs a request and one for each end that has ended; a
        search for the failed ones looks at all. Raises InvalidSetting.
        """
        return newest_workflows(self.binding, state=state, name=name, limit=limit)

    def drain(self, *, queues: Sequence[str] | None = None) -> WorkerReport:
        """Run all tasks that are due, and those that they send, in this thread; returns when none is due. For tests.

        Retries and delays are those of a worker: with a manual clock, move it on and drain again. Raises QueueNotFound
        only for queues that were named.
        """
        from shardq.tasks.worker import TaskWorker  # noqa: PLC0415 - it is built on this

        return TaskWorker(self, self.binding.client, queues=queues, threads=0, idle_exit=0).run()

    def run_here(self, task: Task[Any, Any, T], body: bytes) -> T:
        """Run a task in this thread, as :meth:`Task.call` does."""
        current, loop = CurrentTask(task.name, "", 1, 0), Loop()
        try:
            value = run_function(
                task.function,
                task.arguments.decode(body),
                current,
                loop=loop,
                middleware=self.middleware,
                timeout=task.settings.timeout,
            )
        finally:
            loop.close()
        from shardq.tasks.workflow import Workflow  # noqa: PLC0415 - it is built on this

        if isinstance(value, Workflow):
            raise InvalidSetting(
                f"task {task.name!r} returned a workflow, which call() cannot run: use drain()"
            )
        if isinstance(value, Signature):
            return value.task.app.run_here(value.task, value.body)  # type: ignore[no-any-return]
        return task.arguments.decode_result(task.arguments.encode_result(value))  # type: ignore[no-any-return]

    def _options_in(self, queue: str, others: Collection[str] = ()) -> dict[str, TaskOptions]:
        """The options of the tasks whose queue this is, and then of others that are sent there, by their names."""
        own = {name: each.settings for name, each in self._tasks.items() if each.settings.queue == queue}
        named = {name: self._tasks[name].settings for name in sorted(others) if name in self._tasks}
        return own | named

    def _register(self, task: Task[Any, Any, Any]) -> None:
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

    def _check_limit(self, task: Task[Any, Any, Any]) -> None:
        options = task.settings
        others = [each.settings for each in self._tasks.values() if each.name != task.name]
        limits = {each.rate_limit for each in others if each.queue == options.queue}
        different = limits - {options.rate_limit, None}
        if different and options.rate_limit is not None:
            raise InvalidSetting(
                f"rate_limit={options.rate_limit!r}: queue {options.queue!r} has tasks of {different.pop()!r}, and the "
                "limit is one of the queue; give the task a queue of its own"
            )

    def __repr__(self) -> str:
        return f"<Tasks {', '.join(sorted(self._tasks))}>"


class _Source(NamedTuple):
    """Where a task was defined, and in which execution of which module. It tells a reload from a second task."""

    code: CodeType
    place: str  # of the function
    module: str  # whose execution made the task
    execution: object  # another one after a reload
    body: CodeType | None  # of the module, or of the cell of a notebook

    def may_replace(self, before: _Source) -> bool:
        """True when the module was loaded again, or an interactive session has defined the function again."""
        if self.module != before.module:
            return False
        if self.execution is not before.execution:
            return True
        return self.place == before.place and self.body is not before.body and self.code is not before.code


def _source_of(function: Any) -> _Source:
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - inspect has none that costs as little
    while frame is not None and not _is_module(frame):
        frame = frame.f_back
    code, place = function.__code__, f"{function.__module__}:{function.__qualname__}"
    if frame is None:  # in a thread
        return _Source(code, place, "", None, None)
    names = frame.f_globals
    module = str(names.get("__file__") or names.get("__name__"))
    return _Source(code, place, module, names.get("__spec__") or names, frame.f_code)


def _is_module(frame: FrameType) -> bool:
    return not frame.f_code.co_flags & inspect.CO_OPTIMIZED and frame.f_locals is frame.f_globals


def _collision(name: str, before: _Source, source: _Source) -> str:
    first, second = (f"{each.place} (line {each.code.co_firstlineno})" for each in (before, source))
    return (
        f"there are two tasks {name!r}, {first} and {second}: a worker could not tell them apart; give each a name, as "
        "in @tasks.task(name=...), or use task.options(...) for calls with other options"
    )
