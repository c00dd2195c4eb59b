"""A task: a function that can be sent to a worker."""

from __future__ import annotations

import functools
import hashlib
import inspect
import io
from collections.abc import Callable, Iterable, Sequence
from types import UnionType
from typing import Any, Generic, Literal, ParamSpec, TypeVar, Union, Unpack, get_args, get_origin, overload

from shardq.base.callables import check_runs
from shardq.base.receipt import MessageId
from shardq.base.texts import described, kind_of, shown
from shardq.errors import InvalidMessage, InvalidSetting
from shardq.schedules.schedule import Schedule
from shardq.tasks.arguments import Arguments
from shardq.tasks.calling import CurrentTask, run_function
from shardq.tasks.entries import check_task_id, in_run
from shardq.tasks.errors import ArgumentsRejected
from shardq.tasks.options import CallKeywords, Named, ScheduleKeywords, TaskOptions
from shardq.tasks.plans import Bucket, check_plan, read_plans, stream, write_plan
from shardq.tasks.registry import TaskDefinition, TaskRegistry
from shardq.tasks.result import Result
from shardq.tasks.signature import Signature, send_calls
from shardq.tasks.task_client import TaskClient
from shardq.tasks.workflow import KEEP_SECONDS, Workflow, group_of, with_placeholder, workflow_of
from shardq.worker.loop import CoroutineLoop

__all__ = ["Task", "store_replacement"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

MAX_REPLACEMENTS = 30
"""Of a task by a call, of that by another one, and so on: each makes ids longer, and costs a request at each step."""


class Task(TaskDefinition, Generic[P, R, T]):
    """A function that can be sent to a worker, and still be called. Made by :meth:`Tasks.task`.

    ``task(...)`` is the function itself. ``task.send(...)`` stores a message for a worker. Both take the arguments of
    the function, and type checkers see that.

    >>> import shardq.tasks
    >>> tasks = shardq.tasks.Tasks(url)
    >>> @tasks.task(queue="sums")
    ... def add(first: int, second: int = 1) -> int:
    ...     return first + second
    >>> add(1, 2)
    3
    >>> result = add.send(1, second=5)
    >>> tasks.drain().worked, result.get()
    (1, 6)
    """

    function: Callable[P, R]

    def __init__(self, app: TaskRegistry, function: Callable[P, R], options: TaskOptions) -> None:
        _check_function(function)
        functools.update_wrapper(self, function)
        self.app, self.function, self.settings = app, function, options
        self.name = options.name or function.__name__
        self.arguments = Arguments(self.name, function, _value_of)

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function, here and now."""
        return self.function(*args, **kwargs)

    def options(self, **changes: Unpack[CallKeywords]) -> Task[P, R, T]:
        """Return the same task with other options for its calls, such as ``add.options(delay=60).send(1)``.

        The options are those of :class:`TaskOptions`. Raises InvalidSetting.
        """
        changed = Task.__new__(Task)
        changed.__dict__ |= {**self.__dict__, "settings": self.settings.change(changes)}
        return changed

    def signature(self, /, *args: P.args, **kwargs: P.kwargs) -> Signature[T]:
        """Return a call that is not sent yet.

        Raises ArgumentsRejected for arguments that the function does not take.
        """
        body = self.arguments.encode(args, kwargs)
        group = self._made("group", self.settings.group, args, kwargs)
        return Signature(self, body, self.settings, group, self._unique_key(body, args, kwargs))

    def then(self, /, *args: Any, **kwargs: Any) -> Signature[T]:
        """Return a step of a workflow whose first argument is the result of the step before it. Give the others.

        Raises ArgumentsRejected for arguments that the function does not take.
        """
        takes, body = self.arguments.encode_rest(args, kwargs)
        if callable(self.settings.group) or callable(self.settings.unique_key):
            raise InvalidSetting(
                f"the group or unique_key of task {self.name!r} is made of its arguments, and the first comes later: "
                "use options(group=..., unique_key=None).then(...)"
            )
        group = self._made("group", self.settings.group, args, kwargs)
        return Signature(self, body, self.settings, group, self._unique_key(body, args, kwargs), takes)

    def map(self, values: Iterable[Any], *, errors: Literal["stop", "collect"] = "stop") -> Workflow:
        """Return a workflow of one call for each value, which do not wait for each other: see :func:`group`.

        Without values it is done at once, and its result is an empty list.
        """
        if not isinstance(values, Iterable):
            raise InvalidSetting(f"map: {shown(values)} is not a list of values: give one for each call")
        found = group_of((self.signature(value) for value in values), errors)  # type: ignore[call-arg]
        return with_placeholder(found, self.app, self.settings.queue, self)

    @overload
    def send(self, /, *args: P.args, **kwargs: P.kwargs) -> Result[T]: ...
    @overload
    def send(self, /, *args: Any, transaction: object, **kwargs: Any) -> Result[T]: ...
    def send(self, /, *args: Any, **kwargs: Any) -> Result[T]:
        """Send a call to a worker; returns its result, which can be waited for.

        With ``transaction=`` the call is part of a transaction of the application: it is sent when that commits, and
        never when it rolls back. Give an object that :meth:`shardq.Client.transaction` takes. The transaction is
        joined anew by each call, so any thread may send that may use it. Ask for the result after the commit. A
        function that takes an argument of that name itself gets it: use ``signature(...).send(transaction=...)``
        there.

        Raises ArgumentsRejected, and the errors of :meth:`shardq.Producer.send`; nothing is stored then. While another
        call has its unique key, nothing is stored, and the result is that of the other one. With a transaction it
        raises the errors of :meth:`shardq.Client.transaction`, too.
        """
        transaction = None if self.arguments.takes("transaction") else kwargs.pop("transaction", None)
        return self.signature(*args, **kwargs).send(transaction=transaction)

    async def asend(self, /, *args: P.args, **kwargs: P.kwargs) -> Result[T]:
        """Send a call from a coroutine, as :meth:`send` does: ``result = await add.asend(1, 2)``.

        Cancelled, it is carried out, and CancelledError is raised when it has ended.
        """
        return await self.signature(*args, **kwargs).asend()

    def send_many(self, calls: Iterable[Signature[T]], *, transaction: object = None) -> list[Result[T]]:
        """Send many calls in bundles: ``add.send_many(add.signature(each) for each in numbers)``.

        With a ``transaction`` as in :meth:`send`. Raises the errors of :meth:`Tasks.send_many`.
        """
        return send_calls(self.app.task_client, calls, transaction)

    def schedule(self, schedule_id: str, **timing: Unpack[ScheduleKeywords]) -> Schedule:
        """Send a call without arguments at fixed times: ``report.schedule("nightly", cron="@daily")``.

        With arguments: ``report.signature("sales").schedule(...)``. Raises the errors of :meth:`Signature.schedule`
        and ArgumentsRejected.
        """
        return self.signature().schedule(schedule_id, **timing)  # type: ignore[call-arg]

    def call(self, /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run the task here as a worker would: its arguments are written and read, an async function is awaited.

        Nothing is stored, and nothing is tried again. For tests. Raises ArgumentsRejected, ResultRejected,
        TaskTimeout, or the error of the function.
        """
        return _run_here(self, self.arguments.encode(args, kwargs))  # type: ignore[no-any-return]

    def result(self, task_id: str) -> Result[T]:
        """Return the result of a call of this task that was sent before, by its id. Raises InvalidReceipt."""
        check_task_id(task_id)
        return Result(self.app.task_client, task_id, self.arguments, self.settings.keep_result)

    def _unique_key(self, body: bytes, args: Sequence[Any], kwargs: dict[str, Any]) -> str | None:
        key = self.settings.unique_key
        if key is True:
            return f"{self.name[:100]}-{hashlib.sha256(body).hexdigest()[:40]}"
        return None if isinstance(key, bool) else self._made("unique_key", key, args, kwargs)

    def _made(
        self, what: str, name: Named | bool | None, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> str | None:
        """Return a group or a key: as it was given, or as its function makes it of the arguments."""
        try:
            found: object = name(*args, **kwargs) if callable(name) else name
        except Exception as error:
            raise ArgumentsRejected(
                f"{what} of task {self.name!r} cannot be made: its function, which gets the arguments as they were "
                f"given, raised {described(error)}"
            ) from error
        if found is not None and not isinstance(found, str):
            raise InvalidMessage(f"{what} is made to be {shown(found)}, {kind_of(found)}: make a str of it")
        return found

    def __repr__(self) -> str:
        return f"<Task {self.name}>"


def _run_here(task: TaskDefinition, body: bytes) -> Any:
    """Run a task in this thread, as a worker would."""
    current, loop = CurrentTask(task.name, "", 1, 0), CoroutineLoop()
    try:
        value = run_function(
            task.function,
            task.arguments.decode(body),
            current,
            loop=loop,
            middleware=task.app.middleware,
            timeout=task.settings.timeout,
        )
    finally:
        loop.close()
    if isinstance(value, Workflow):
        raise InvalidSetting(f"task {task.name!r} returned a workflow, which call() cannot run: use drain()")
    if isinstance(value, Signature):
        return _run_here(value.task, value.body)
    return task.arguments.decode_result(task.arguments.encode_result(value))


def _value_of(kind: Any) -> Any:
    """Return the type of a task's result: of a call that it returns in place of a value, that of the call's."""
    if get_origin(kind) in (Union, UnionType):
        values = [each for each in get_args(kind) if each not in (Signature, Signature[Any])]
        return Union[tuple(map(_value_of, values or [Any]))]  # noqa: UP007 - of a tuple
    if get_origin(kind) is Signature:
        return get_args(kind)[0]
    return Any if kind in (Signature, Workflow) else kind


def _check_function(function: object) -> None:
    if not inspect.isfunction(function):
        raise InvalidSetting(
            f"{shown(function)} is {kind_of(function)}: make a task of a function, such as a def that calls it"
        )
    if not inspect.iscoroutinefunction(function):
        check_runs("task", function)


def store_replacement(
    task_client: TaskClient,
    task: str,
    name: str,
    given: Signature[object] | Workflow,
    keep: float,
    *,
    again: bool,
) -> None:
    """Store the plan of the call or workflow that a task returned in place of a value. May be repeated.

    The value of the call or workflow is the result of the task. The plan is stored under the id of the task, as that
    of a bucket is. So a task that ends so ends once, also after a crash: where a plan is stored, its function is not
    run again. The plans of a large group are several: they are stored as a whole first, and copied from there. The
    entry of the task is written by the worker that ends the last step.

    ``keep`` is for how many seconds the result of the task is kept. With ``again`` an earlier attempt may have stored
    a part of another result. Raises the errors of :meth:`Workflow.send`, and InvalidSetting for one that is too deep;
    nothing is stored then.
    """
    if task.count("#") >= MAX_REPLACEMENTS:
        raise InvalidSetting(
            f"task {name!r} returned a call, as {MAX_REPLACEMENTS} before it did, each in place of the one before: "
            "return a value, or send the next call separately"
        )
    first = in_run(task, 0)
    queue = MessageId.parse(first.partition("#")[0]).shard.queue
    workflow = with_placeholder(workflow_of(given), None, queue)
    plan = workflow.plan(keep if "#" in task else max(keep, KEEP_SECONDS), name, replaces_task=keep > 0)
    root = check_plan(write_plan(plan))
    if workflow.buckets or again:
        whole = task_client.results.enter_whole(
            first, stream(Bucket(root, workflow.buckets)).read(), plan.keep
        )
        (_, plan), *inner = read_plans(io.BytesIO(whole))
        root = write_plan(plan)
        task_client.results.enter_plans(((first + path, write_plan(each)) for path, each in inner), plan.keep)
    if "#" in task:
        task_client.results.enter_plans([(first, root)], plan.keep)
    else:
        task_client.results.enter_workflow(first, root, plan.keep)
