"""A task: a function that can be sent to a worker."""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Callable, Coroutine, Iterable, Sequence
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeVar,
    Union,
    Unpack,
    get_args,
    get_origin,
    overload,
)

import msgspec

import shardq
from shardq.base.callables import check_runs
from shardq.base.outgoing_message import Headers, OutgoingMessage
from shardq.base.texts import kind_of, shown
from shardq.errors import InvalidMessage, InvalidSetting
from shardq.schedules.schedule import Schedule
from shardq.tasks.arguments import Arguments
from shardq.tasks.errors import ArgumentsRejected
from shardq.tasks.ids import check_task_id
from shardq.tasks.options import CallKeywords, Named, ScheduleKeywords, TaskOptions
from shardq.tasks.plans import KEEP, NAME, TIMEOUT
from shardq.tasks.result import Result

if TYPE_CHECKING:
    import shardq.tasks.app
    import shardq.tasks.workflow

__all__ = ["Signature", "Task", "TaskDecorator"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Signature(msgspec.Struct, Generic[T_co], frozen=True):
    """A call of a task that is not sent yet: the task, its arguments as they are sent, and the options of the call.

    Made by :meth:`Task.signature`; sent with others by :meth:`Tasks.send_many`.
    """

    task: Task[Any, Any, T_co]
    body: bytes
    options: TaskOptions
    group: str | None
    unique_key: str | None
    takes: str | None = None  # the parameter that takes what the step before it returned

    def send(self) -> Result[T_co]:
        """Send it. Raises what :meth:`Task.send` raises; ArgumentsRejected for one that :meth:`Task.then` made."""
        return self.task.app.send_many([self])[0]

    def schedule(self, schedule_id: str, **timing: Unpack[ScheduleKeywords]) -> Schedule:
        """Send it at each occurrence of a schedule, by a cron expression, every so many seconds, or once.

        The workers of its queue keep the schedule going: see :meth:`shardq.Schedules.create` for when that is, and for
        what it raises. InvalidSetting too for a call with a ``delay``, ``due``, ``unique_key`` or ``dedupe_key``.
        """
        return self.task.app.binding.schedule(schedule_id, self, timing)

    def check_whole(self) -> None:
        """Raise ArgumentsRejected for a call that waits for what a step before it returns."""
        if self.takes is not None:
            raise ArgumentsRejected(
                f"task {self.task.name!r} waits for the argument {self.takes!r}: send it in a chain() or chord(), or "
                "make it with signature()"
            )

    def message(self) -> OutgoingMessage:
        """The message that is stored. Raises ArgumentsRejected as :meth:`check_whole`."""
        self.check_whole()
        options = self.options
        headers: Headers = {NAME: self.task.name, KEEP: float(options.keep_result)}
        if options.timeout is not None:
            headers[TIMEOUT] = float(options.timeout)
        return OutgoingMessage(
            body=self.body,
            priority=options.priority,
            delay=options.delay,
            due=options.due,
            headers=headers,
            dedupe_key=options.dedupe_key,
            ttl=options.ttl,
            group=self.group,
            unique_key=self.unique_key,
            on_conflict=options.on_conflict,
        )


class Task(Generic[P, R, T]):
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

    def __init__(self, app: shardq.tasks.Tasks, function: Callable[P, R], options: TaskOptions) -> None:
        _check_function(function)
        functools.update_wrapper(self, function)
        self.app, self.function, self._options = app, function, options
        self.name = options.name or function.__name__
        self.arguments = Arguments(self.name, function, _value_of)

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function, here and now."""
        return self.function(*args, **kwargs)

    @property
    def settings(self) -> TaskOptions:
        """The options of its decorator, and of :meth:`options`."""
        return self._options

    def options(self, **changes: Unpack[CallKeywords]) -> Task[P, R, T]:
        """The same task with other options for its calls, such as ``add.options(delay=60).send(1)``.

        The options are those of :class:`TaskOptions`. Raises InvalidSetting.
        """
        changed = Task.__new__(Task)
        changed.__dict__ |= {**self.__dict__, "_options": self._options.change(changes)}
        return changed

    def signature(self, /, *args: P.args, **kwargs: P.kwargs) -> Signature[T]:
        """A call that is not sent yet. Raises ArgumentsRejected for arguments that the function does not take."""
        body = self.arguments.encode(args, kwargs)
        group = self._made("group", self._options.group, args, kwargs)
        return Signature(self, body, self._options, group, self._unique_key(body, args, kwargs))

    def then(self, /, *args: Any, **kwargs: Any) -> Signature[T]:
        """A step of a workflow whose first argument is what the step before it returned; the others are given here.

        Raises ArgumentsRejected for arguments that the function does not take.
        """
        takes, body = self.arguments.encode_rest(args, kwargs)
        if callable(self._options.group) or callable(self._options.unique_key):
            raise InvalidSetting(
                f"the group or unique_key of task {self.name!r} is made of its arguments, and the first comes later: "
                "use options(group=..., unique_key=None).then(...)"
            )
        group = self._made("group", self._options.group, args, kwargs)
        return Signature(self, body, self._options, group, self._unique_key(body, args, kwargs), takes)

    def map(
        self, values: Iterable[Any], *, errors: Literal["stop", "collect"] = "stop"
    ) -> shardq.tasks.Workflow:
        """A workflow of one call for each value, which do not wait for each other: see :func:`group`.

        Without values it is done at once, and its result is an empty list.
        """
        from shardq.tasks.workflow import group_of, placed  # noqa: PLC0415 - it is built on this

        if not isinstance(values, Iterable):
            raise InvalidSetting(f"map: {shown(values)} is no list of values: give one for each call")
        found = group_of((self.signature(value) for value in values), errors)  # type: ignore[call-arg]
        return placed(found, self.app, self._options.queue, self)

    def send(self, /, *args: P.args, **kwargs: P.kwargs) -> Result[T]:
        """Send a call to a worker; returns its result, which can be waited for.

        Raises ArgumentsRejected, and what :meth:`shardq.Producer.send` raises; nothing is stored then. While another
        call has its unique key, nothing is stored, and the result is that of the other one.
        """
        return self.signature(*args, **kwargs).send()

    def send_many(self, calls: Iterable[Signature[T]]) -> list[Result[T]]:
        """Send many calls in bundles: ``add.send_many(add.signature(each) for each in numbers)``.

        Raises what :meth:`Tasks.send_many` raises.
        """
        return self.app.send_many(calls)

    def schedule(self, schedule_id: str, **timing: Unpack[ScheduleKeywords]) -> Schedule:
        """Send a call without arguments at fixed times: ``report.schedule("nightly", cron="@daily")``.

        With arguments: ``report.signature("sales").schedule(...)``. Raises what :meth:`Signature.schedule` raises, and
        ArgumentsRejected.
        """
        return self.signature().schedule(schedule_id, **timing)  # type: ignore[call-arg]

    def call(self, /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run the task here as a worker would: its arguments are written and read, an async function is awaited.

        Nothing is stored, and nothing is tried again. For tests. Raises ArgumentsRejected, ResultRejected, TaskTimeout,
        or what the function raises.
        """
        return self.app.run_here(self, self.arguments.encode(args, kwargs))

    def result(self, task_id: str) -> Result[T]:
        """The result of a call of this task that was sent before, by its id. Raises InvalidReceipt."""
        check_task_id(task_id)
        return Result(self.app.binding, task_id, self, self._options.keep_result)

    def _unique_key(self, body: bytes, args: Sequence[Any], kwargs: dict[str, Any]) -> str | None:
        key = self._options.unique_key
        if key is True:
            return f"{self.name[:100]}-{hashlib.sha256(body).hexdigest()[:40]}"
        return None if isinstance(key, bool) else self._made("unique_key", key, args, kwargs)

    def _made(
        self, what: str, name: Named | bool | None, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> str | None:
        """A group or a key: as it was given, or as its function makes it of the arguments."""
        try:
            found: object = name(*args, **kwargs) if callable(name) else name
        except Exception as error:
            raise ArgumentsRejected(
                f"{what} of task {self.name!r} cannot be made: its function, which gets the arguments as they were "
                f"given, raised {type(error).__name__}: {error}"
            ) from error
        if found is not None and not isinstance(found, str):
            raise InvalidMessage(f"{what} is made to be {shown(found)}, {kind_of(found)}: make a str of it")
        return found

    def __repr__(self) -> str:
        return f"<Task {self.name}>"


class TaskDecorator(Protocol):
    """What :meth:`Tasks.task` returns when it is called with options."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, Signature[T]]], /
    ) -> Task[P, Coroutine[Any, Any, Signature[T]], T]: ...
    @overload
    def __call__(self, function: Callable[P, Signature[T]], /) -> Task[P, Signature[T], T]: ...
    @overload
    def __call__(
        self, function: Callable[P, shardq.tasks.Workflow], /
    ) -> Task[P, shardq.tasks.Workflow, Any]: ...
    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, T]], /
    ) -> Task[P, Coroutine[Any, Any, T], T]: ...
    @overload
    def __call__(self, function: Callable[P, T], /) -> Task[P, T, T]: ...


def _value_of(kind: Any) -> Any:
    """The type of a task's result: of a call that it returns in place of a value, that of the call's."""
    from shardq.tasks.workflow import Workflow  # noqa: PLC0415 - it is built on this

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
