"""Tasks in a test: what was sent, and running it in the test's own thread."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Any, Self

import msgspec

from shardq.client import Client, check_client
from shardq.errors import QueueNotFound
from shardq.message import StoredMessage
from shardq.queue_internals import waiting_in
from shardq.tasks.app import Tasks
from shardq.tasks.plans import NAME, WORKFLOW
from shardq.tasks.work_unit import Runner
from shardq.tasks.worker import TaskWorker, check_app, check_names
from shardq.worker import WorkerReport
from shardq.worker.policy import HandlerExited

__all__ = ["InlineTasks", "SentTask"]


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
        """The tasks that wait, now or for later: queue by queue, those of a queue in the order of their sends.

        The queues are those of the tasks, or those that are named. Raises ArgumentsRejected, for a task whose function
        does not take what was sent.
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

        The first error that a task raises ends it: it is raised here, once the worker has settled the task as it always
        does. With ``raises=False`` errors are only logged, and retries wait for the clock. Outcomes such as
        ``shardq.Retry`` are no errors. What is no Exception, as that of ``pytest.skip``, is raised here too, but for
        SystemExit: that is the failure HandlerExited.
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
        self._runner = Runner(
            tasks.tasks, tasks.middleware, self._binding, self._loop, self._raise, stopping=self._is_stopping
        )

    def _raise(self, error: Exception) -> None:
        raised = error.raised if isinstance(error, HandlerExited) else None
        told = error if raised is None or isinstance(raised, SystemExit) else raised
        self._error = self._error or told
        self.stop()
