"""One queue and its producers with asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import shardq.client.producer
import shardq.client.queue
from shardq.aio.consumer import Consumer
from shardq.aio.group_commit import CoroutineGroupCommit, Outcome
from shardq.aio.message import BodyReader
from shardq.aio.semaphore import Semaphore
from shardq.aio.sync_core import BulkParts, hooks_of, send_each
from shardq.aio.threads import Threads, Wraps, awaited, passed
from shardq.base.codec import BYTES, Codec
from shardq.base.large_body import LargeBody
from shardq.base.outgoing_message import DEFAULT_PRIORITY, HeaderValue, OutgoingMessage
from shardq.base.texts import shown
from shardq.client.producer import BUNDLE_BYTES, BUNDLE_MESSAGES, SendArguments
from shardq.core.hooks import HookCall, stamped
from shardq.core.message import StoredMessage
from shardq.core.selecting import MessageFilter
from shardq.core.settings import QueueSettings

__all__ = ["Producer", "Queue"]

T = TypeVar("T")


class Queue(Wraps[shardq.client.queue.Queue]):
    """A queue of a store. Made by a :class:`shardq.aio.Client`.

    Its methods are those of :class:`shardq.Queue`, with the same arguments, results and errors.
    """

    name = passed[str]()
    """The queue's name."""

    async def settings(self) -> QueueSettings:
        """Return the settings, at most a second old. Raises QueueNotFound."""
        return await self._threads.run(lambda: self._sync.settings)

    def producer(
        self,
        *,
        codec: Codec = BYTES,
        linger: float = 0.0,
        bundle_messages: int = BUNDLE_MESSAGES,
        bundle_bytes: int = BUNDLE_BYTES,
    ) -> Producer:
        """Return a producer, which sends messages.

        With ``linger`` a ``send`` waits for that number of seconds for sends of other tasks. The other options are
        those of :meth:`shardq.Queue.producer`. Raises InvalidSetting.
        """
        sync = self._sync.producer(
            codec=codec, linger=linger, bundle_messages=bundle_messages, bundle_bytes=bundle_bytes
        )
        return Producer(sync, self._threads, most=bundle_messages, linger=linger)

    def consumer(
        self,
        *,
        codec: Codec = BYTES,
        name: str | None = None,
        visibility_timeout: float | None = None,
        keep_leases: bool = False,
    ) -> Consumer:
        """Return a consumer, which receives messages.

        With ``keep_leases`` a thread extends the leases, so a loop that is busy loses none. The options are those of
        :meth:`shardq.Queue.consumer`. Raises InvalidSetting.
        """
        sync = self._sync.consumer(
            codec=codec, name=name, visibility_timeout=visibility_timeout, keep_leases=keep_leases
        )
        return Consumer(sync, self._threads)

    async def semaphore(self, name: str) -> Semaphore:
        """Return an existing semaphore of the queue's store. Raises QueueNotFound."""
        return Semaphore(await self._threads.run(self._sync.semaphore, name), self._threads)

    counts = awaited(shardq.client.queue.Queue.counts)
    shard_states = awaited(shardq.client.queue.Queue.shard_states)
    consumers = awaited(shardq.client.queue.Queue.consumers)
    peek = awaited(shardq.client.queue.Queue.peek)
    get = awaited(shardq.client.queue.Queue.get)
    trace = awaited(shardq.client.queue.Queue.trace)
    edit = awaited(shardq.client.queue.Queue.edit)
    remove = awaited(shardq.client.queue.Queue.remove)
    remove_where = awaited(shardq.client.queue.Queue.remove_where)
    purge = awaited(shardq.client.queue.Queue.purge)
    replay = awaited(shardq.client.queue.Queue.replay)
    alter = awaited(shardq.client.queue.Queue.alter)
    pause = awaited(shardq.client.queue.Queue.pause)
    resume = awaited(shardq.client.queue.Queue.resume)
    redrive = awaited(shardq.client.queue.Queue.redrive)
    sweep = awaited(shardq.client.queue.Queue.sweep)
    evict = awaited(shardq.client.queue.Queue.evict)
    ack = awaited(shardq.client.queue.Queue.ack)
    release = awaited(shardq.client.queue.Queue.release)
    extend = awaited(shardq.client.queue.Queue.extend)

    async def open(self, message_id: str) -> BodyReader:
        """Open the large body of a message, in any state. Errors are those of :meth:`shardq.Queue.open`."""
        return BodyReader(await self._threads.run(self._sync.open, message_id), self._threads)

    async def select(self, where: MessageFilter, *, codec: Codec = BYTES) -> AsyncIterator[StoredMessage]:
        """Iterate over the messages that a filter means, as :meth:`shardq.Queue.select` does."""
        async for message in self._threads.iterate(partial(self._sync.select, where, codec=codec)):
            yield message

    async def history(
        self, *, since: datetime | None = None, until: datetime | None = None, codec: Codec = BYTES
    ) -> AsyncIterator[StoredMessage]:
        """Iterate over the messages acked in a period, as :meth:`shardq.Queue.history` does."""
        async for message in self._threads.iterate(
            partial(self._sync.history, since=since, until=until, codec=codec)
        ):
            yield message


class Producer(Wraps[shardq.client.producer.Producer]):
    """Sends messages to one queue. For any number of tasks.

    Made by :meth:`shardq.aio.Queue.producer`. Nothing is buffered: when a send returns, its messages are stored. Tasks
    that send at the same time have their messages stored together.
    """

    def __init__(
        self, sync: shardq.client.producer.Producer, threads: Threads, *, most: int, linger: float = 0.0
    ) -> None:
        super().__init__(sync, threads)
        self._most = most
        self._sends: CoroutineGroupCommit[OutgoingMessage, str] = CoroutineGroupCommit(
            threads, self._send_each, most=most, linger=linger
        )

    async def send(self, body: Any, **options: Unpack[SendArguments]) -> str:
        """Store one message and return its id. Options and errors are those of :meth:`shardq.Producer.send`.

        A send that is cancelled before it was begun stores nothing. One that was begun is carried out, and
        CancelledError is raised when its outcome is known. Its cause is the error of the send, such as OutcomeUnknown.
        Without an error a note ``carried out: '<id>'`` says that the message is stored.
        """
        if isinstance(body, OutgoingMessage):
            if options:  # which it refuses
                return await self._threads.run(self._sync.send, body, **options)
            message = body
        else:
            message = OutgoingMessage(body=body, **options)
        if message.unique_key is not None or isinstance(message.body, LargeBody):
            return await self._threads.run(self._sync.send, message)  # alone, so that others need not wait
        hooks, name = hooks_of(self._sync)
        if hooks is None:
            return await self._sends.submit(message)
        call = HookCall(operation="send", queue=name)
        with hooks.around(call):
            sent = await self._sends.submit(stamped(hooks, name, message))
            call.ids = [sent]
        return sent

    def _send_each(self, messages: Sequence[OutgoingMessage], since: float) -> list[Outcome[str]]:
        return [(each.result, each.error) for each in send_each(self._sync, messages, since)]

    send_file = awaited(shardq.client.producer.Producer.send_file)
    send_stream = awaited(shardq.client.producer.Producer.send_stream)

    async def send_many(
        self,
        bodies: Iterable[Any] | AsyncIterable[Any],
        *,
        priority: int = DEFAULT_PRIORITY,
        delay: float = 0.0,
        due: datetime | None = None,
        headers: Mapping[str, HeaderValue] | None = None,
        ttl: float | None = None,
        group: str | None = None,
    ) -> Sequence[str]:
        """Store many messages, and return their ids in order. Options and errors are those of the sync ``send_many``.

        A plain iterable is read in another thread. An async iterable is read in the loop, one bundle at a time, and
        occupies no thread meanwhile. If the call is cancelled, it is read no further. CancelledError is raised when the
        messages that were read are stored, and its cause names those that are not.
        """
        if not isinstance(bodies, AsyncIterable):
            send = partial(self._sync.send_many, bodies, priority=priority, delay=delay, due=due)
            return await self._threads.run(send, headers=headers, ttl=ttl, group=group)
        shared = OutgoingMessage(
            body=None, priority=priority, delay=delay, due=due, headers=headers, ttl=ttl, group=group
        )
        hooks, name = hooks_of(self._sync)
        if hooks is None:
            return await self._send_parts(bodies, shared)
        call = HookCall(operation="send", queue=name, batch=True)
        with hooks.around(call):
            call.ids = await self._send_parts(bodies, stamped(hooks, name, shared))
        return call.ids

    async def _send_parts(self, bodies: AsyncIterable[Any], shared: OutgoingMessage) -> Sequence[str]:
        parts = BulkParts(self._sync, shared)
        ids = await self._threads.run(parts.store, ())  # refused, if at all, before anything is read
        feed, ended = aiter(bodies), None
        while ended is None:
            block, ended = await _read(feed, self._most)
            if isinstance(ended, asyncio.CancelledError):
                raise await self._stored(parts, block, ended)
            if block or not isinstance(ended, StopAsyncIteration):
                ids = await self._threads.run(parts.store, _items(block, ended))
        return ids

    async def _stored(
        self, parts: BulkParts, block: Sequence[Any], cancelled: asyncio.CancelledError
    ) -> asyncio.CancelledError:
        """Store what was read when the call was cancelled; returns the error to raise."""
        storing = asyncio.ensure_future(self._threads.run(parts.store, block))
        # After a second cancellation nothing else reads its error, which asyncio would then log.
        storing.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.wait([storing])  # another cancellation does not wait
        if (error := storing.exception()) is not None:
            cancelled.__cause__ = error
        else:
            cancelled.add_note(f"carried out: {shown(storing.result())}")
        return cancelled

    async def close(self) -> None:
        """Refuse further sends. All messages that were sent are stored already."""
        self._sync.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def _read(bodies: AsyncIterator[Any], most: int) -> tuple[list[Any], BaseException | None]:
    """Return the next items, and the error that ended them, which may be StopAsyncIteration or a cancellation."""
    block: list[Any] = []
    try:
        while len(block) < most:
            block.append(await anext(bodies))
    except (Exception, asyncio.CancelledError) as error:
        return block, error
    return block, None


def _items(block: Sequence[Any], error: BaseException | None) -> Iterator[Any]:
    """Yield what was read, and raise the error of the iterable after it."""
    yield from block
    if isinstance(error, Exception) and not isinstance(error, StopAsyncIteration):
        raise error
