"""A call of a task, and sending calls: alone, by a schedule, many in bundles, or in an application's transaction."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Generic, TypeVar, Unpack

import msgspec

from shardq.base.outgoing_message import Headers, OutgoingMessage
from shardq.base.texts import kind_of, shown
from shardq.client.queue import Queue
from shardq.errors import InvalidSetting, PartialSend, QueueNotFound, SchemaMismatch, UnsupportedByStore
from shardq.schedules.schedule import Schedule
from shardq.tasks.entries import KEEP, NAME, TIMEOUT
from shardq.tasks.errors import ArgumentsRejected
from shardq.tasks.options import ScheduleKeywords, TaskOptions
from shardq.tasks.registry import TaskDefinition
from shardq.tasks.result import Result
from shardq.tasks.task_client import TaskClient, settings_for

__all__ = ["Signature", "in_thread", "send_calls", "within"]


def within(task_client: TaskClient, transaction: object) -> TaskClient:
    """Return what sends in a transaction of the application, by this thread; the client itself without one.

    Raises the errors of :meth:`shardq.Client.transaction`.
    """
    return task_client if transaction is None else _JoinedTaskClient(task_client, transaction)


class _JoinedTaskClient(TaskClient):
    """A client of tasks whose sends are part of a transaction. It is made for each call, so any thread may send."""

    def __init__(self, outside: TaskClient, transaction: object) -> None:
        super().__init__(outside.client.transaction(connection=transaction), outside.options)
        self._outside = outside

    def queue(self, name: str, tasks: Collection[str] = ()) -> Queue:
        """Return a queue of tasks; one that is missing is created in the transaction, or outside if it cannot be.

        Limits that differ are not reported here: workers do that, and every call would.
        """
        with suppress(QueueNotFound):
            return self.client.queue(name)
        try:
            return self.client.create_queue(name, exist_ok=True, **settings_for(self.options(name, tasks)))
        except UnsupportedByStore:
            self._outside.queue(name, tasks)
            return self.client.queue(name)


R = TypeVar("R")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

CALLS_AT_ONCE = 2_000


class Signature(msgspec.Struct, Generic[T_co], frozen=True):
    """A call of a task that is not sent yet: the task, its arguments as they are sent, and the options of the call.

    Made by :meth:`Task.signature`; sent with others by :meth:`Tasks.send_many`.
    """

    task: TaskDefinition
    body: bytes
    options: TaskOptions
    group: str | None
    unique_key: str | None
    takes: str | None = None  # the parameter that takes what the step before it returned

    def send(self, *, transaction: object = None) -> Result[T_co]:
        """Send it, as :meth:`Task.send` does; raises ArgumentsRejected for one that :meth:`Task.then` made."""
        return send_calls(self.task.app.task_client, [self], transaction)[0]

    async def asend(self) -> Result[T_co]:
        """Send it from a coroutine. Cancelled, it is carried out, and CancelledError is raised when it has ended."""
        return await in_thread(self.send)

    def schedule(self, schedule_id: str, **timing: Unpack[ScheduleKeywords]) -> Schedule:
        """Send it at each occurrence of a schedule: by a cron expression, at an interval in seconds, or once.

        The workers of its queue keep the schedule going: see :meth:`shardq.Schedules.create` for the times, and for
        its errors. InvalidSetting too for a call with a ``delay``, ``due``, ``unique_key`` or ``dedupe_key``.
        """
        message, options, task_client = self.message(), self.options, self.task.app.task_client
        wrong = {each: getattr(message, each) for each in ("delay", "due", "unique_key", "dedupe_key")}
        if given := [each for each, value in wrong.items() if value]:
            raise InvalidSetting(
                f"{given[0]}={shown(wrong[given[0]])} of task {self.task.name!r}: a schedule says when its task is "
                "sent, and overlap='skip' leaves out one while the last one waits or runs; use "
                f"task.options({given[0]}={0.0 if given[0] == 'delay' else None})"
            )
        task_client.check(options.queue, [message])
        create = partial(
            task_client.client.schedules.create,
            schedule_id,
            queue=options.queue,
            body=message.body,
            headers=message.headers,
            priority=message.priority,
            group=message.group,
            ttl=message.ttl,
            **timing,
        )
        with suppress(QueueNotFound, SchemaMismatch):  # a call that is refused creates no queue
            return create()
        task_client.queue(options.queue, [self.task.name])
        return create()

    def check_whole(self) -> None:
        """Raise ArgumentsRejected for a call that waits for the result of a step before it."""
        if self.takes is not None:
            raise ArgumentsRejected(
                f"task {self.task.name!r} waits for the argument {self.takes!r}: send it in a chain() or chord(), or "
                "make it with signature()"
            )

    def message(self) -> OutgoingMessage:
        """Return the message that is stored. Raises ArgumentsRejected as :meth:`check_whole`."""
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


async def in_thread(send: Callable[..., R], *args: object) -> R:
    """Send in a thread; it is carried out even if the task that awaits it is cancelled."""
    import asyncio  # noqa: PLC0415 - most programs never need it

    from shardq.aio.threads import carried_out  # noqa: PLC0415 - as above

    return await carried_out(asyncio.to_thread(send, *args))


def send_calls(
    task_client: TaskClient, calls: Iterable[Signature[T]], transaction: object = None
) -> list[Result[T]]:
    """Send calls of any tasks; returns their results in order. Raises as :meth:`Tasks.send_many` says."""
    drawn, results = _checked_calls(calls), list[Result[T]]()
    sending = within(task_client, transaction)
    while some := _draw(drawn, results):
        ids = _send_some(sending, some, results)
        results += [
            Result(task_client, identity, call.task.arguments, call.options.keep_result)
            for identity, call in zip(ids, some, strict=True)
        ]
    return results


def _checked_calls(calls: Iterable[Signature[T]]) -> Iterator[Signature[T]]:
    if isinstance(calls, Signature) or not isinstance(calls, Iterable):
        raise InvalidSetting(f"{kind_of(calls)} is not a list of calls: give several, or an iterator of them")
    for call in calls:
        if not isinstance(call, Signature):
            raise InvalidSetting(f"{shown(call)} is not a call: give what task.signature(...) returns")
        call.check_whole()
        yield call


def _draw(calls: Iterator[Signature[T]], sent: Sequence[Result[T]]) -> list[Signature[T]]:
    some: list[Signature[T]] = []
    try:
        for call in calls:
            some.append(call)
            if len(some) >= CALLS_AT_ONCE:
                break
    except Exception as error:
        if not sent:
            raise
        raise _partial(error, _ids(sent), [call.message() for call in some]) from error
    return some


def _send_some(
    task_client: TaskClient, calls: Sequence[Signature[T]], sent: Sequence[Result[T]]
) -> list[str]:
    """Store the calls, those of one queue together; returns their ids in order."""
    by_queue: dict[str, list[int]] = {}
    for place, call in enumerate(calls):
        by_queue.setdefault(call.options.queue, []).append(place)
    found: dict[int, str] = {}
    messages = [call.message() for call in calls]
    for queue, places in by_queue.items():
        try:
            ids = task_client.send(queue, [messages[place] for place in places])
        except Exception as error:
            if not (sent or found):
                raise
            stored = [*_ids(sent), *(found[place] for place in sorted(found))]
            others = [each for place, each in enumerate(messages) if place not in {*found, *places}]
            raise _partial(error, stored, others, [messages[place] for place in places]) from error
        found |= zip(places, ids, strict=True)
    return [found[place] for place in range(len(calls))]


def _ids(sent: Sequence[Result[T]]) -> list[str]:
    return [result.id for result in sent]


def _partial(
    error: Exception,
    stored: Sequence[str],
    others: Sequence[OutgoingMessage],
    tried: Sequence[OutgoingMessage] = (),
) -> PartialSend:
    """Return the error that names all calls that are stored, and those that were drawn and are not."""
    stopped = error.__cause__ if isinstance(error, PartialSend) else error
    if isinstance(error, PartialSend):
        stored, tried = [*stored, *error.stored], error.unsent
    else:
        left = getattr(error, "unsent", None)
        tried = [left] if isinstance(left, OutgoingMessage) else tried
    unsent = [*tried, *others]
    text = f"{len(stored)} calls are stored, and {len(unsent)} that were drawn are not: {stopped}"
    return PartialSend(f"{text}; give `error.unsent` to producers of their queues", stored, unsent)
