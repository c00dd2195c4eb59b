"""An app: the tasks of an application, and the ways to run them beside a worker: a pool of processes, or a test."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Any, ParamSpec, Protocol, Self, TypeVar, Unpack, cast, overload

import msgspec

from shardq.base.texts import kind_of, shown
from shardq.client import Client, check_client
from shardq.client.queue_internals import waiting_in
from shardq.core.message import StoredMessage
from shardq.core.settings import check_number
from shardq.errors import InvalidSetting, QueueNotFound
from shardq.tasks.entries import NAME, WORKFLOW
from shardq.tasks.options import TaskKeywords, make_options
from shardq.tasks.registry import TaskRegistry, check_app, tasks_named
from shardq.tasks.result import Result
from shardq.tasks.signature import Signature, in_thread, send_calls
from shardq.tasks.task import Task
from shardq.tasks.views import WorkflowState, WorkflowView, newest_workflows
from shardq.tasks.worker import BATCH, TaskWorker, TaskWorkerKeywords, check_names, check_options
from shardq.tasks.workflow import Workflow
from shardq.tasks.workflow_result import WorkflowResult
from shardq.worker import JsonLog, PoolReport, WorkerOptions, WorkerPool, WorkerReport
from shardq.worker.options import MAX_THREADS
from shardq.worker.policy import HandlerExited
from shardq.worker.process import WorkerPlan
from shardq.worker.scaling import Processes

__all__ = ["InlineTasks", "SentTask", "TaskDecorator", "TaskPlan", "TaskPool", "Tasks"]

P = ParamSpec("P")

T = TypeVar("T")


class TaskDecorator(Protocol):
    """The decorator that :meth:`Tasks.task` returns when it is called with options."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, Signature[T]]], /
    ) -> Task[P, Coroutine[Any, Any, Signature[T]], T]: ...
    @overload
    def __call__(self, function: Callable[P, Signature[T]], /) -> Task[P, Signature[T], T]: ...
    @overload
    def __call__(self, function: Callable[P, Workflow], /) -> Task[P, Workflow, Any]: ...
    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, T]], /
    ) -> Task[P, Coroutine[Any, Any, T], T]: ...
    @overload
    def __call__(self, function: Callable[P, T], /) -> Task[P, T, T]: ...


class Tasks(TaskRegistry):
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

        The options are those of :class:`TaskOptions`. Raises InvalidSetting for a wrong one, for an object that is not
        a function, and for a second task of the same name. Tasks that a factory makes need a ``name=`` each. A module
        that is reloaded or imported again replaces its tasks. Warns of parameters without an annotation: a tuple
        arrives as a list there.
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
        return cast("Mapping[str, Task[Any, Any, Any]]", super().tasks)

    def send_many(self, calls: Iterable[Signature[T]], *, transaction: object = None) -> list[Result[T]]:
        """Send calls of any tasks, those of one queue in bundles; returns their results in order.

        ``calls`` may be an iterator of any length: some thousands are drawn and stored at a time. Raises what
        :meth:`shardq.Producer.send_many` raises. When it fails after some were stored, also when the iterator raises,
        that is PartialSend. ``stored`` has the ids of all calls that are stored, ``unsent`` the messages of those that
        were drawn and are not. The rest is still in the iterator. With a ``transaction`` of the application, as in
        :meth:`Task.send`, all that is stored stands or falls with it.
        """
        return send_calls(self.task_client, calls, transaction)

    async def asend_many(self, calls: Iterable[Signature[T]]) -> list[Result[T]]:
        """Send calls from a coroutine, as :meth:`send_many` does, which draws them in a thread.

        Cancelled, it is carried out, and CancelledError is raised when it has ended.
        """
        return await in_thread(self.send_many, calls)

    def workflow(self, workflow_id: str) -> WorkflowResult:
        """Return the result of a workflow by its id, also of one that another program sent. Raises InvalidReceipt.

        Values have the types that the tasks of this app declare; those of tasks that it does not have are plain.
        """
        declared = {name: each.arguments for name, each in self.tasks.items()}
        return WorkflowResult(self.task_client, workflow_id, declared)

    def workflows(
        self, *, state: WorkflowState | None = None, name: str | None = None, limit: int = 100
    ) -> list[WorkflowView]:
        """Return the newest ``limit`` workflows that a worker has begun and that are kept, the newest first.

        Those of a state, or of a name: the one that ``send(name=...)`` gave, or that of the first task. Workflows of
        other apps on the same store are among them. A state costs a request and one for each end that has ended; a
        search for the failed ones reads all. Raises InvalidSetting.
        """
        return newest_workflows(self.task_client, state=state, name=name, limit=limit)

    def drain(self, *, queues: Sequence[str] | None = None) -> WorkerReport:
        """Run all tasks that are due, and those that they send, in this thread; returns when none is due. For tests.

        Retries and delays are those of a worker: with a manual clock, move it on and drain again. Raises QueueNotFound
        only for queues that were named.
        """
        return TaskWorker(self, self.task_client.client, queues=queues, threads=0, idle_exit=0).run()


class TaskPlan(WorkerPlan, frozen=True, kw_only=True):
    """The plan of a process of a pool of tasks."""

    tasks: str
    named: tuple[str, ...]

    @property
    def work(self) -> str:
        """Describe the work in words, without loading the app."""
        return f"tasks of {self.tasks}" + (f" in {', '.join(self.named)}" if self.named else "")

    @property
    def queues(self) -> tuple[str, ...]:
        """Those that were named, or those of all tasks."""
        return self.named or tasks_named(self.tasks).queues

    def load(self) -> None:
        """Import the app."""
        tasks_named(self.tasks)

    def worker(self, client: Client) -> TaskWorker:
        """Return the worker that the process runs."""
        options: Any = {name: getattr(self.options, name) for name in TaskWorkerKeywords.__annotations__}
        return TaskWorker(
            tasks_named(self.tasks),
            client,
            queues=self.named or None,
            threads=self.options.threads,
            **options,
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
        measured: bool = False,
        log: JsonLog | None = None,
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
            options=WorkerOptions(**options, threads=threads),
            log=log,
            tasks=tasks,
            named=tuple(queues or ()),
        )
        self._begin(
            plan,
            processes=processes,
            handler_timeout=handler_timeout,
            max_restarts=max_restarts,
            on_progress=on_progress,
            measured=measured,
        )


class SentTask(msgspec.Struct, frozen=True):
    """A task that waits in its queue: its name, and the arguments of its call, as far as they were given.

    A workflow that has not begun is one, called "shardq.workflow", without arguments.
    """

    name: str
    arguments: dict[str, Any]
    message: StoredMessage


class InlineTasks:
    """The tasks of an app within a test: sent to the store of the test, and run in its thread.

    Within the ``with`` block the app sends by the client of the test; after it as before. The fixture ``shardq_tasks``
    of pytest makes one.

    >>> import shardq.tasks
    >>> app = shardq.tasks.Tasks()
    >>> @app.task
    ... def divide(number: int, by: int = 2) -> float:
    ...     return number / by
    >>> with shardq.connect("memory://") as client, InlineTasks(app, client) as tasks:
    ...     results = divide.send(4), divide.send(1, by=0)
    ...     print([(task.name, task.arguments) for task in tasks.sent()])
    ...     try:
    ...         tasks.drain()
    ...     except ZeroDivisionError:
    ...         print(results[0].get())
    [('divide', {'number': 4}), ('divide', {'number': 1, 'by': 0})]
    2.0
    """

    def __init__(self, app: Tasks, client: Client) -> None:
        check_app(app)
        check_client(client)
        self._app, self._client, self._stack = app, client, ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(self._app.bound(self._client))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def sent(self, *, queues: Sequence[str] | None = None) -> list[SentTask]:
        """Return the tasks that wait, now or for later: queue by queue, those of a queue in the order of their sends.

        The queues are those of the tasks, or those that are named. Raises ArgumentsRejected, for a task whose function
        does not take the sent arguments.
        """
        check_names(queues)
        found: list[SentTask] = []
        for name in queues or self._app.queues:
            with suppress(QueueNotFound):  # nothing was sent to it yet
                found += [
                    self._read(each) for each in waiting_in(self._client.queue(name)) if NAME in each.headers
                ]
        return found

    def drain(self, *, queues: Sequence[str] | None = None, raises: bool = True) -> WorkerReport:
        """Run all tasks that are due, and those that they send, in this thread; returns when none is due.

        The first error that a task raises ends it: it is raised here, once the worker has settled the task as it
        always does. With ``raises=False`` errors are only logged, and retries wait for the clock. Outcomes such as
        ``shardq.Retry`` are no errors. Other exceptions than Exception, as that of ``pytest.skip``, are raised here
        too, but for SystemExit: that is the failure HandlerExited.
        """
        worker = _RaisingWorker if raises else TaskWorker
        return worker(self._app, self._client, queues=queues, threads=0, idle_exit=0).run()

    def _read(self, message: StoredMessage) -> SentTask:
        name = str(message.headers[NAME])
        if name == WORKFLOW:
            return SentTask(name, {}, message)
        task = self._app.tasks.get(name)
        given: dict[str, Any] = (
            msgspec.msgpack.decode(message.body)
            if task is None
            else dict(task.arguments.decode(message.body).arguments)
        )
        return SentTask(name, given, message)


class _RaisingWorker(TaskWorker):
    """Ends with the first error of a task."""

    def __init__(self, tasks: Tasks, client: Client, **options: Any) -> None:
        super().__init__(tasks, client, **options)
        self._runner = self._make_runner(tasks, self._raise)

    def _raise(self, error: Exception) -> None:
        raised = error.raised if isinstance(error, HandlerExited) else None
        cause = error if raised is None or isinstance(raised, SystemExit) else raised
        self._error = self._error or cause
        self.stop()
