"""Messages and batches that were received with asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial, wraps
from typing import Any, ParamSpec, TypeAlias, TypeVar, overload

import shardq.client.batch
import shardq.core.message
from shardq.aio.group_commit import CoroutineGroupCommit
from shardq.aio.sync_core import ack_each
from shardq.aio.threads import Threads, Wraps, awaited, passed
from shardq.base.large_body import LargeBody
from shardq.base.outgoing_message import Headers
from shardq.core.hooks import Hooks, handler_call
from shardq.errors import LeaseLost

__all__ = ["Acks", "Batch", "BodyReader", "Message", "acks_of", "awaited_handler", "observed_coroutine"]

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
Acks: TypeAlias = CoroutineGroupCommit[shardq.client.batch.Batch | shardq.core.message.Message, None]

_MOST_ACKS = 1_000  # in one call


def acks_of(threads: Threads) -> Acks:
    """Return what acks together. Acks that the store does not answer at once are repeated beside others."""
    repeated: Acks = CoroutineGroupCommit(
        threads, partial(ack_each, repeats=True), most=_MOST_ACKS, in_order=False
    )
    return CoroutineGroupCommit(
        threads, partial(ack_each, repeats=False), most=_MOST_ACKS, in_order=False, again=repeated
    )


class _Settled(Wraps[S]):
    """Settled messages; LeaseLost names those of the asyncio client."""

    def __init__(self, sync: S, threads: Threads, acks: Acks) -> None:
        super().__init__(sync, threads)
        self._acks = acks

    async def _ack(self, acked: shardq.client.batch.Batch | shardq.core.message.Message) -> None:
        with self._own_messages():
            await self._acks.submit(acked)

    async def _run(self, call: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._own_messages():
            return await super()._run(call, *args, **kwargs)

    @contextmanager
    def _own_messages(self) -> Iterator[None]:
        try:
            yield
        except LeaseLost as error:
            error.messages = tuple(Message(each, self._threads, self._acks) for each in error.messages)
            raise


class Batch(_Settled[shardq.client.batch.Batch], Sequence["Message"]):
    """The messages of one bulk read, to be settled together or one by one, as those of :class:`shardq.Batch`.

    Acks that several tasks ask for at the same time are one request to the store.
    """

    def __init__(self, sync: shardq.client.batch.Batch, threads: Threads, acks: Acks) -> None:
        super().__init__(sync, threads, acks)
        self._messages: list[Message] | None = None

    def __len__(self) -> int:
        return len(self._sync)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        return self._all[index]

    def __iter__(self) -> Iterator[Message]:
        return iter(self._all)

    bodies = passed[list[Any]]()
    """The bodies, in the order of the messages; raises InvalidMessage when the codec cannot read one."""
    queue = passed[str | None]()
    """The name of the queue that the messages are from; None for an empty batch."""
    lease_until = passed[datetime | None]()
    """When the first lease expires, by the store's clock; None for an empty batch."""

    def part(self, messages: Iterable[Message]) -> Batch:
        """Return some of the messages as a batch of their own. Raises InvalidSetting for one of another batch."""
        return Batch(self._sync.part([_of(message) for message in messages]), self._threads, self._acks)

    async def ack(self, *, results: Mapping[Message, Any] | None = None) -> None:
        """Finish the messages: they are never delivered again. It can be repeated. Raises LeaseLost.

        ``results`` are those of single messages, as in :meth:`shardq.Batch.ack`.
        """
        if results is None:
            await self._ack(self._sync)
        else:
            named = {_of(message): result for message, result in results.items()}
            await self._run(self._sync.ack, results=named)

    release = awaited(shardq.client.batch.Batch.release)
    extend = awaited(shardq.client.batch.Batch.extend)
    forward = awaited(shardq.client.batch.Batch.forward)
    dead_letter = awaited(shardq.client.batch.Batch.dead_letter)

    @property
    def _all(self) -> list[Message]:
        if self._messages is None:
            self._messages = [Message(each, self._threads, self._acks) for each in self._sync]
        return self._messages


class Message(_Settled[shardq.core.message.Message]):
    """A received message, as :class:`shardq.Message`: its properties are the same, its methods are coroutines."""

    id = passed[str]()
    queue = passed[str]()
    receipt = passed[str]()
    body = passed[Any]()
    raw = passed[bytes]()
    large = passed[LargeBody | None]()
    headers = passed[Headers]()
    dedupe_key = passed[str | None]()
    group = passed[str | None]()
    lane = passed[str | None]()
    unique_key = passed[str | None]()
    priority = passed[int]()
    due = passed[datetime]()
    enqueued_at = passed[datetime]()
    expires_at = passed[datetime | None]()
    deliveries = passed[int]()
    lease_until = passed[datetime]()
    settled = passed[bool]()
    released = passed[bool]()

    async def last_delivery(self) -> bool:
        """Return whether a release makes the message a dead letter: see :attr:`shardq.Message.last_delivery`."""
        return await self._threads.run(lambda: self._sync.last_delivery)

    async def lost(self) -> bool:
        """Return whether another consumer may have the message: see :attr:`shardq.Message.lost`."""
        return await self._threads.run(lambda: self._sync.lost)

    async def ack(self, *, result: Any = None) -> None:
        """Finish the message: it is never delivered again. Errors are those of :meth:`shardq.Message.ack`."""
        if result is None:
            await self._ack(self._sync)
        else:
            await self._run(self._sync.ack, result=result)

    release = awaited(shardq.core.message.Message.release)
    extend = awaited(shardq.core.message.Message.extend)
    forward = awaited(shardq.core.message.Message.forward)
    dead_letter = awaited(shardq.core.message.Message.dead_letter)
    note = awaited(shardq.core.message.Message.note)

    async def open(self) -> BodyReader:
        """Open a :attr:`large` body. Errors are those of :meth:`shardq.Message.open`."""
        return BodyReader(await self._threads.run(self._sync.open), self._threads)

    def __eq__(self, other: object) -> bool:
        return _of(self) == _of(other) if isinstance(other, Message) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._sync)


def _of(message: Message) -> shardq.core.message.Message:
    return message._sync  # noqa: SLF001 - of this file


class BodyReader(Wraps[Any]):
    """A large body, which is read in threads. Reading raises the errors of :meth:`shardq.Message.open`."""

    async def read(self, size: int = -1) -> bytes:
        """Return up to ``size`` bytes, or all that is left; nothing at the end."""
        return await self._threads.run(self._sync.read, size)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while part := await self.read(1_048_576):
            yield part


def observed_coroutine(hooks: Hooks | None, handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return an async handler of messages, or of batches, with hooks around it; the same one where there are none."""
    if hooks is None:
        return handler

    @wraps(handler)
    async def await_handler(given: Message | Batch) -> object:
        messages = [_of(each) for each in (given if isinstance(given, Batch) else [given])]
        call = handler_call(messages, batch=isinstance(given, Batch))
        with hooks.around(call):
            call.result = await handler(given)
        return call.result

    return await_handler


async def awaited_handler(handled: Awaitable[R], is_ended: Callable[[], bool]) -> R:
    """Await a handler. One that cancels its own task gets CancelledError at its next await, and the task continues.

    ``is_ended`` returns True if the task was cancelled by its worker.
    """
    try:
        returned = await handled
    except GeneratorExit:  # nothing can be awaited
        raise
    except BaseException:
        await _forget_cancellation(is_ended)
        raise
    await _forget_cancellation(is_ended)
    return returned


async def _forget_cancellation(is_ended: Callable[[], bool]) -> None:
    task = asyncio.current_task()
    if task is None or not task.cancelling() or is_ended():
        return
    while task.uncancel():
        pass
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(0)  # raises it if that was not done yet
    if is_ended():
        raise asyncio.CancelledError
