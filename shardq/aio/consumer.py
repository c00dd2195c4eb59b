"""Receiving messages with asyncio."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar, overload

import shardq.batch
import shardq.consumer
import shardq.message
from shardq.aio.sync_core import NothingYet, ack_each, doze, receive_or_pause, rest
from shardq.aio.threads import Gathering, Threads, Wraps, awaited, carried_out, passed
from shardq.base.large_body import LargeBody
from shardq.base.outgoing_message import Headers
from shardq.errors import LeaseLost

__all__ = ["Batch", "BodyReader", "Consumer", "Message"]

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
Acks = Gathering[shardq.batch.Batch | shardq.message.Message, None]

_MOST_ACKS = 1_000  # in one call


class Consumer(Wraps[shardq.consumer.Consumer]):
    """Receives messages of one queue, or of several, as :class:`shardq.Consumer` does.

    Made by :meth:`shardq.aio.Queue.consumer` and :meth:`shardq.aio.Client.consumer`. Any number of tasks may receive
    from it. They take turns, the first come first. One that waits needs no thread and no connection to the store. A
    receive that is cancelled releases what it has claimed, and the deliveries are not counted.
    """

    def __init__(self, sync: shardq.consumer.Consumer, threads: Threads) -> None:
        super().__init__(sync, threads)
        self._wakened = threads.sleeper()
        doze(sync, lambda: threads.wake(self._wakened.set))
        self._first, self._claiming = asyncio.Lock(), asyncio.Lock()
        self._acks: Acks = Gathering(threads, _acked, most=_MOST_ACKS)
        self._popped: list[shardq.message.Message] = []  # by a pop that was cancelled
        self._stopped = False

    name = passed[str]()
    """The name of the consumer."""

    async def receive(self, limit: int = 1, *, wait: float = 0.0) -> Batch:
        """Receive up to ``limit`` messages, and hold them for the visibility timeout.

        Waits up to ``wait`` seconds for the first message; the batch is empty when none came. Errors and guarantees are
        those of :meth:`shardq.Consumer.receive`.
        """
        receive = partial(self._sync.receive, limit)
        batch = await self._when_there(lambda wait: receive(wait=wait), wait, undo=_given_back)
        return Batch(batch, self._threads, self._acks)

    async def batches(self, limit: int, *, wait: float | None = None) -> AsyncGenerator[Batch, None]:
        """Receive batch after batch, none of them empty.

        Ends when nothing was due for ``wait`` seconds (None: never), or when :meth:`stop` is called.
        """
        while not self._stopped:
            batch = await self.receive(limit, wait=_patience(wait))
            if batch:
                yield batch
                del batch
            elif wait is not None:
                return

    async def messages(self, *, wait: float | None = None, limit: int = 1) -> AsyncGenerator[Message, None]:
        """Receive message after message; up to ``limit`` of them are claimed in one step.

        Ends as :meth:`batches` does. Messages that were claimed and not handed out are released uncounted when the
        iterator is closed. Use :func:`contextlib.aclosing` where you leave it early and the limit is above 1.
        """
        async for batch in self.batches(limit, wait=wait):
            left = list(batch)
            try:
                while left:
                    yield left.pop(0)
            finally:
                if left:
                    await carried_out(batch.part(left).release(count=False))

    async def pop(self, *, wait: float = 0.0) -> Message | None:
        """Receive one message and ack it before it is returned; None when none is due within ``wait`` seconds.

        The message is delivered at most once. The next ``pop`` or ``pop_many`` hands out what one that was cancelled
        has acked. Errors are those of :meth:`shardq.Consumer.pop`.
        """
        if self._popped:
            return Message(self._popped.pop(0), self._threads, self._acks)
        message = await self._when_there(lambda wait: self._sync.pop(wait=wait), wait, undo=self._keep)
        return None if message is None else Message(message, self._threads, self._acks)

    async def pop_many(self, limit: int, *, wait: float = 0.0) -> list[Message]:
        """Receive up to ``limit`` messages of one shard and ack them before they are returned, as :meth:`pop` does."""
        found = self._popped[: max(0, limit)]
        del self._popped[: len(found)]  # in place: a thread may add what a cancelled call has acked
        popped: Sequence[shardq.message.Message] = found or await self._when_there(
            lambda wait: self._sync.pop_many(limit, wait=wait), wait, undo=self._popped.extend
        )
        return [Message(each, self._threads, self._acks) for each in popped]

    def _keep(self, popped: shardq.message.Message | None) -> None:
        if popped is not None:
            self._popped.append(popped)

    def stop(self) -> None:
        """End waiting, :meth:`batches` and :meth:`messages`. To be called in the loop."""
        self._stopped = True
        self._sync.stop()
        self._wakened.set()

    async def close(self) -> None:
        """Stop extending leases and leave the queue's consumers, as :meth:`shardq.Consumer.close` does."""
        self.stop()
        await carried_out(self._close())

    async def _close(self) -> None:
        async with self._claiming:
            await self._threads.run(rest, self._sync)
            await self._threads.run(self._sync.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _when_there(
        self, receive: Callable[[float], R], wait: float, *, undo: Callable[[R], object]
    ) -> R:
        """Receive in a thread when there may be something. Of those that wait one listens: the first one."""
        if not (isinstance(wait, (int, float)) and wait > 0):
            return await self._claimed(lambda: receive(wait), undo)
        until = time.monotonic() + wait
        try:
            async with asyncio.timeout_at(asyncio.get_running_loop().time() + wait):
                await self._first.acquire()
        except TimeoutError:
            return await self._claimed(lambda: receive(0.0), undo)
        try:
            again = False
            while True:
                self._wakened.clear()
                if self._stopped:
                    self._wakened.set()
                found = await self._claimed(partial(self._attempt, receive, until, again=again), undo)
                if not isinstance(found, NothingYet):
                    return found
                with suppress(TimeoutError):
                    async with asyncio.timeout(max(0.0, found.seconds)):
                        await self._wakened.wait()
                again = True
        finally:
            self._first.release()

    def _attempt(self, receive: Callable[[float], R], until: float, *, again: bool) -> R | NothingYet:
        left = max(0.0, until - time.monotonic())
        return receive_or_pause(self._sync, lambda: receive(left), again=again)

    async def _claimed(self, claim: Callable[[], R], undo: Callable[[Any], object]) -> R:
        """Claim in a thread, one at a time."""

        def undone(found: object) -> None:
            if found is not None and not isinstance(found, NothingYet):
                undo(found)

        async with self._claiming:
            return await self._threads.undoable(claim, undone)


def _given_back(batch: shardq.batch.Batch) -> None:
    if batch:
        batch.release(count=False)


def _acked(
    acked: Sequence[shardq.batch.Batch | shardq.message.Message],
) -> list[tuple[None, BaseException | None]]:
    return [(None, error) for error in ack_each(acked)]


def _patience(wait: float | None) -> float:
    return shardq.consumer.LONGEST_WAIT if wait is None else wait


class _Settled(Wraps[S]):
    """Settled messages; LeaseLost names those of the asyncio client."""

    def __init__(self, sync: S, threads: Threads, acks: Acks) -> None:
        super().__init__(sync, threads)
        self._acks = acks

    async def _ack(self, acked: shardq.batch.Batch | shardq.message.Message) -> None:
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


class Batch(_Settled[shardq.batch.Batch], Sequence["Message"]):
    """The messages of one bulk read, to be settled together or one by one, as those of :class:`shardq.Batch`.

    Acks that several tasks ask for at the same time are one request to the store.
    """

    def __init__(self, sync: shardq.batch.Batch, threads: Threads, acks: Acks) -> None:
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

    release = awaited(shardq.batch.Batch.release)
    extend = awaited(shardq.batch.Batch.extend)
    forward = awaited(shardq.batch.Batch.forward)
    dead_letter = awaited(shardq.batch.Batch.dead_letter)

    @property
    def _all(self) -> list[Message]:
        if self._messages is None:
            self._messages = [Message(each, self._threads, self._acks) for each in self._sync]
        return self._messages


class Message(_Settled[shardq.message.Message]):
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

    release = awaited(shardq.message.Message.release)
    extend = awaited(shardq.message.Message.extend)
    forward = awaited(shardq.message.Message.forward)
    dead_letter = awaited(shardq.message.Message.dead_letter)
    note = awaited(shardq.message.Message.note)

    async def open(self) -> BodyReader:
        """Open a :attr:`large` body. Errors are those of :meth:`shardq.Message.open`."""
        return BodyReader(await self._threads.run(self._sync.open), self._threads)

    def __eq__(self, other: object) -> bool:
        return _of(self) == _of(other) if isinstance(other, Message) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._sync)


def _of(message: Message) -> shardq.message.Message:
    return message._sync  # noqa: SLF001 - of this file


class BodyReader(Wraps[Any]):
    """A large body, which is read in threads. Reading raises what :meth:`shardq.Message.open` says."""

    async def read(self, size: int = -1) -> bytes:
        """Return up to ``size`` bytes, or all that is left; nothing at the end."""
        return await self._threads.run(self._sync.read, size)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while part := await self.read(1_048_576):
            yield part
