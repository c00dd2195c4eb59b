"""Receiving messages with asyncio."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

import shardq.client.consumer
import shardq.core.message
from shardq.aio.message import Batch, Message, acks_of
from shardq.aio.sync_core import idle_without_thread, nothing_in, receive_or_pause, rest, return_uncounted
from shardq.aio.threads import Threads, Wraps, carried_out, passed
from shardq.aio.waiters import Waiters
from shardq.errors import Closed

__all__ = ["Consumer"]

R = TypeVar("R")


class Consumer(Wraps[shardq.client.consumer.Consumer]):
    """Receives messages of one queue, or of several, as :class:`shardq.Consumer` does.

    Made by :meth:`shardq.aio.Queue.consumer` and :meth:`shardq.aio.Client.consumer`. Any number of tasks may receive
    from it. They take turns, the first come first. One that waits needs no thread and no connection to the store. A
    receive that is cancelled releases the messages that it has claimed, and the deliveries are not counted.
    """

    def __init__(self, sync: shardq.client.consumer.Consumer, threads: Threads) -> None:
        super().__init__(sync, threads)
        self._waiters = Waiters(threads)
        self._waiters.rest = partial(rest, sync)
        idle_without_thread(sync, self._waiters.wake)
        self._acks = acks_of(threads)
        self._popped: list[shardq.core.message.Message] = []  # by a pop that was cancelled
        self._stopped = False

    name = passed[str]()
    """The name of the consumer."""

    async def receive(self, limit: int = 1, *, wait: float = 0.0) -> Batch:
        """Receive up to ``limit`` messages, and hold them for the visibility timeout.

        Waits up to ``wait`` seconds for the first message; the batch is empty when none came. Errors and guarantees are
        those of :meth:`shardq.Consumer.receive`.
        """
        receive = partial(self._sync.receive, limit)
        batch = await self._when_there(
            lambda wait: receive(wait=wait),
            wait,
            undo=partial(return_uncounted, self._sync),
            nothing=lambda: nothing_in(self._sync),
        )
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
                    with suppress(Closed):  # as of all messages that are held at the end, their leases expire
                        await carried_out(batch.part(left).release(count=False))

    async def pop(self, *, wait: float = 0.0) -> Message | None:
        """Receive one message and ack it before it is returned; None when none is due within ``wait`` seconds.

        The message is delivered at most once. The next ``pop`` or ``pop_many`` hands out the messages that a cancelled
        call has acked. Errors are those of :meth:`shardq.Consumer.pop`.
        """
        if self._popped:
            return Message(self._popped.pop(0), self._threads, self._acks)
        message = await self._when_there(
            lambda wait: self._sync.pop(wait=wait), wait, undo=self._keep, nothing=lambda: None
        )
        return None if message is None else Message(message, self._threads, self._acks)

    async def pop_many(self, limit: int, *, wait: float = 0.0) -> list[Message]:
        """Receive up to ``limit`` messages of one shard and ack them before they are returned, as :meth:`pop` does."""
        found = self._popped[: max(0, limit)]
        del self._popped[: len(found)]  # in place: a thread may add what a cancelled call has acked
        popped: Sequence[shardq.core.message.Message] = found or await self._when_there(
            lambda wait: self._sync.pop_many(limit, wait=wait),
            wait,
            undo=self._popped.extend,
            nothing=lambda: nothing_in(self._sync),
        )
        return [Message(each, self._threads, self._acks) for each in popped]

    def _keep(self, popped: shardq.core.message.Message | None) -> None:
        if popped is not None:
            self._popped.append(popped)

    def stop(self) -> None:
        """End waiting, :meth:`batches` and :meth:`messages`. To be called in the loop."""
        self._stopped = True
        self._sync.stop()
        self._waiters.wake_here()

    async def close(self) -> None:
        """Stop extending leases and leave the queue's consumers, as :meth:`shardq.Consumer.close` does."""
        self.stop()
        if not self._threads.closed:  # the client has closed it with all else
            await carried_out(self._waiters.call(self._rest_and_close))

    def _rest_and_close(self) -> None:
        rest(self._sync)
        self._sync.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _when_there(
        self,
        receive: Callable[[float], R],
        wait: float,
        *,
        undo: Callable[[R], object],
        nothing: Callable[[], R],
    ) -> R:
        """Receive in a thread when there may be something."""
        if not (isinstance(wait, (int, float)) and wait > 0):
            return await self._waiters.call(lambda: receive(wait), undo)
        until = time.monotonic() + wait
        return await self._waiters.wait(
            lambda again: receive_or_pause(
                self._sync, lambda: receive(max(0.0, until - time.monotonic())), again=again
            ),
            wait,
            last_try=lambda: receive(0.0),
            nothing=nothing,
            undo=undo,
        )


def _patience(wait: float | None) -> float:
    return shardq.client.consumer.LONGEST_WAIT if wait is None else wait
