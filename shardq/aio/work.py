"""Working the messages of a queue with handlers that are coroutines."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Any

from shardq.aio.consumer import Consumer
from shardq.aio.message import Batch, Message, awaited_handler, observed_coroutine
from shardq.aio.patterns import QueuePattern, working_consumer
from shardq.aio.queue import Queue
from shardq.aio.sync_core import hooks_of, is_finished
from shardq.aio.threads import carried_out, is_abandoned
from shardq.base.callables import check_awaitable
from shardq.base.codec import BYTES, Codec
from shardq.base.log import Log
from shardq.base.texts import described
from shardq.client.consumer import MAX_BATCH
from shardq.client.outcome import Backoff, DeadLetter, Discard, Outcome, Retry, Snooze, check_returned
from shardq.client.queue_internals import chains_of, observer_of, queue_of
from shardq.core.settings import QueueSettings, check_number
from shardq.errors import InvalidSetting, ShardqError

__all__ = ["Handler", "work"]

Handler = Callable[[Message], Awaitable[object]]
"""Works one message. It may raise or return a Retry, Snooze, Discard or DeadLetter."""

_log = Log(__name__)

_MOST = 10_000  # handlers at a time
_PAUSE = 1.0  # seconds, after an error of the store
_LONGEST_RECEIVE = 3_600.0  # seconds of one receive
_LONGEST_REASON = 500  # characters
_UNBEGUN = Snooze(0.0)  # of a message whose handler has not ended: a release that does not count
_KINDS = {Discard: "discarded", Snooze: "snoozed"}  # others are failures


async def work(
    queue: Queue | QueuePattern,
    handler: Handler,
    *,
    concurrency: int = 100,
    prefetch: int | None = None,
    wait: float | None = None,
    codec: Codec = BYTES,
    name: str | None = None,
    visibility_timeout: float | None = None,
    stop: asyncio.Event | None = None,
) -> int:
    """Run ``handler`` for each message of a queue, up to ``concurrency`` at a time; returns how many it has finished.

    The queue may be a pattern, :meth:`shardq.aio.Client.pattern`: all queues that match, as they come and go.
    A message is acked when its handler returns. When the handler raises, the message is released, to be delivered
    again after the queue's ``retry_delay``, which doubles with each delivery. At its last delivery it becomes a dead
    letter. The handler may raise or return an outcome: :class:`shardq.Retry`, :class:`shardq.Snooze`,
    :class:`shardq.Discard` or :class:`shardq.DeadLetter`. A thread extends the leases. The messages of a group are
    worked one after the other. Up to ``prefetch`` messages are claimed ahead, half of the concurrency without it.

    It ends when nothing was due for ``wait`` seconds (None: never), or when ``stop`` is set; running handlers end
    first. When it is cancelled it cancels the handlers. Their messages, and those that were not begun, are released,
    and the deliveries are not counted. Retryable errors of the store are logged, and it continues. SystemExit in a
    handler is a failure like any other, and so is a handler that cancels its own task. Raises QueueNotFound, Closed,
    and InvalidSetting, also when a handler is a plain function, or returns something that has not run yet.

    >>> import asyncio, shardq.aio
    >>> async def main():
    ...     async def handler(message):
    ...         print(message.body)
    ...     async with shardq.aio.connect(url) as client:
    ...         queue = await client.create_queue("letters")
    ...         await queue.producer().send(b"dear")
    ...         return await shardq.aio.work(queue, handler, wait=0)
    >>> asyncio.run(main())
    b'dear'
    1
    """
    if not callable(handler):
        raise InvalidSetting(f"handler={handler!r} cannot be called: give an async function of one message")
    check_number("concurrency", concurrency, 1, _MOST, whole=True)
    ahead = concurrency // 2 if prefetch is None else prefetch
    check_number("prefetch", ahead, 0, MAX_BATCH - _MOST, whole=True)
    if wait is not None:
        check_number("wait", wait, 0.0, _LONGEST_RECEIVE)
    consumer = await working_consumer(queue, codec=codec, name=name, visibility_timeout=visibility_timeout)
    async with consumer:
        return await _Work(queue, consumer, handler, concurrency, ahead).run(wait, stop)


class _Plain(Exception):
    """A handler is not an async function. Its argument is the InvalidSetting, which a handler may raise, too."""


async def _made(handler: Handler, message: Message) -> object:
    running: object = handler(message)
    try:
        awaitable = check_awaitable("handler", handler, running)
    except InvalidSetting as error:
        raise _Plain(error) from None
    return await awaitable


class _Work:
    def __init__(
        self, queue: Queue | QueuePattern, consumer: Consumer, handler: Handler, concurrency: int, ahead: int
    ) -> None:
        self._queue, self._consumer = queue, consumer
        hooks, _ = hooks_of(consumer._sync)  # noqa: SLF001 - of its own package
        self._given, self._handler = handler, observed_coroutine(hooks, partial(_made, handler))
        self._slots = asyncio.Semaphore(concurrency)
        self._most, self._enough = concurrency + ahead, max(1, ahead // 2)
        self._claimed = self._finished = 0  # claimed: not begun, or running
        self._unsettled: dict[Message, Outcome | None] = {}  # outcomes: a release until the handler ends
        self._changed = asyncio.Event()
        self._observer = observer_of(queue._sync)  # noqa: SLF001 - of its own package
        self._tasks: set[asyncio.Task[None]] = set()
        self._unbegun: set[asyncio.Task[None]] = set()  # those of them that wait for a slot
        self._begun: set[asyncio.Task[None]] = set()  # those of them that have one
        self._watching: asyncio.Task[Any] | None = None
        self._task = asyncio.current_task()
        self._cancelled = self._stopping = False
        self._error: BaseException | None = None

    async def run(self, wait: float | None, stop: asyncio.Event | None) -> int:
        if stop is not None:
            self._watch(stop)
        try:
            async with aclosing(self._batches(wait)) as batches:
                async for batch in batches:
                    self._begin(batch)
            await self._ended()
        except BaseException:
            self._cancelled = True
            for task in self._unbegun | self._begun:  # the others settle their messages
                task.cancel()
            raise
        finally:
            self._stopping = True
            if self._watching is not None:
                self._watching.cancel()
            await self._ended()
        if self._error is not None:
            raise self._error
        return self._finished

    def _watch(self, stop: asyncio.Event) -> None:
        """Stop with an event, or with its error. If something else cancels the task that waits, another one does."""
        self._watching = asyncio.ensure_future(stop.wait())
        self._watching.add_done_callback(partial(self._has_watched, stop))

    def _has_watched(self, stop: asyncio.Event, task: asyncio.Task[Any]) -> None:
        if task.cancelled() and not self._stopping:
            self._watch(stop)
        elif not self._stopping:
            self._error = task.exception()  # such as that of an event of another loop
            self._stop()

    def _stop(self) -> None:
        """Begin no handler any more: messages that were claimed ahead are released at once."""
        self._stopping = True
        self._consumer.stop()
        self._changed.set()
        for task in self._unbegun:
            task.cancel()

    async def _batches(self, wait: float | None) -> AsyncGenerator[Batch, None]:
        while True:
            free = await self._wait_until_free()
            if self._stopping:
                return
            at_work = bool(self._tasks)
            try:
                batch = await self._consumer.receive(free, wait=_LONGEST_RECEIVE if wait is None else wait)
            except ShardqError as error:
                if not error.retryable:
                    raise
                _log.warning("queue %s: %s", self._queue.name, error)
                await asyncio.sleep(_PAUSE)
                continue
            if batch:
                yield batch
            elif wait is not None and not at_work:
                return
            elif wait is not None and self._tasks:  # which may release messages behind them in their groups
                self._changed.clear()
                await self._changed.wait()

    async def _wait_until_free(self) -> int:
        """Wait until some messages can be claimed; returns how many."""
        await asyncio.sleep(0)  # a stop that was set before is seen
        while True:
            free = min(self._most - self._claimed, 2 * self._most - len(self._unsettled))
            if free >= self._enough or self._stopping:
                return free
            self._changed.clear()
            await self._changed.wait()

    async def _ended(self) -> None:
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _begin(self, batch: Batch) -> None:
        self._claimed += len(batch)
        self._unsettled.update(dict.fromkeys(batch, _UNBEGUN))
        for chain in chains_of(batch):
            self._start(self._work, list(chain))

    def _start(
        self, call: Callable[[list[Message]], Coroutine[None, None, None]], messages: list[Message]
    ) -> None:
        task = asyncio.ensure_future(call(messages))
        self._tasks.add(task)
        task.add_done_callback(partial(self._has_ended, messages))

    def _has_ended(self, messages: list[Message], task: asyncio.Task[None]) -> None:
        """Settle the messages that a task has left when it was stopped, or cancelled by something else."""
        self._tasks.discard(task)
        if left := [message for message in messages if message in self._unsettled]:
            self._start(self._settle_left, left)
        self._changed.set()

    async def _work(self, messages: list[Message]) -> None:
        """Work messages one after the other, until one is not finished."""
        try:
            for number, message in enumerate(messages):
                if self._cancelled or self._stopping:
                    break
                async with self._slot():
                    ending = await self._outcome(message)
                self._unsettled[message] = ending
                self._claimed -= 1
                self._changed.set()
                if not await carried_out(self._end(message, ending, messages[number + 1 :])):
                    break
        except asyncio.CancelledError:
            pass  # before the handler, or in it: its message goes back with the others
        except InvalidSetting as error:  # of what the handler returned: its message goes back, too
            self._error = error
            self._stop()

    async def _settle_left(self, messages: list[Message]) -> None:
        """Settle messages by their outcomes, or release them. Those that follow in a group come first."""
        for message in reversed(messages):
            if message in self._unsettled:
                await self._end(message, self._unsettled[message])

    @asynccontextmanager
    async def _slot(self) -> AsyncGenerator[None, None]:
        task = asyncio.current_task()
        assert task is not None
        self._unbegun.add(task)
        try:
            await self._slots.acquire()
        finally:
            self._unbegun.discard(task)
        self._begun.add(task)
        try:
            yield
        finally:
            self._begun.discard(task)
            self._slots.release()

    async def _end(self, message: Message, ending: Outcome | None, behind: Sequence[Message] = ()) -> bool:
        """Settle a message; returns whether it is finished. If not, those behind it in its group are released first."""
        done = ending is None or isinstance(ending, Discard)
        if done and message.settled and not is_finished(message._sync):  # noqa: SLF001 - of its own package
            done = False  # its handler has released it, or it is lost
        for each in () if done else behind:
            await self._settle(each, _UNBEGUN)
        done = await self._settle(message, ending) and done
        self._finished += done
        return done

    async def _outcome(self, message: Message) -> Outcome | None:
        """Run the handler and notify the observer; returns the outcome of the message, None if it is finished."""
        began = time.perf_counter()
        outcome = await self._ending(message)
        if self._observer is not None:
            kind = "worked" if outcome is None else _KINDS.get(type(outcome), "failed")
            self._observer.handled(message.queue, {kind: 1}, [time.perf_counter() - began])
        return outcome

    async def _ending(self, message: Message) -> Outcome | None:
        task = asyncio.current_task()
        try:
            returned = await awaited_handler(self._handler(message), self._is_cancelled)
        except _Plain as plain:
            raise plain.args[0] from None
        except Outcome as outcome:
            return outcome
        except asyncio.CancelledError:
            if self._cancelled or (task is not None and task.cancelling()):
                raise
            return Retry(reason="the handler was cancelled, or something that it awaited")
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if is_abandoned(task):
                raise
            _log.exception("message %s failed", message.id)
            return Retry(reason=described(error)[:_LONGEST_REASON])
        check_returned(self._given, returned)
        return returned if isinstance(returned, Outcome) else None

    def _is_cancelled(self) -> bool:
        return self._cancelled or bool(self._task and self._task.cancelling())

    async def _settle(self, message: Message, ending: Outcome | None) -> bool:
        done = False
        try:
            match ending:
                case _ if message.settled:
                    pass  # by its handler, or just before something else has cancelled this
                case None | Discard():
                    await message.ack()
                case Snooze():
                    await message.release(delay=ending.seconds, count=False)
                case DeadLetter():
                    await message.dead_letter(ending.reason or "given up by its handler")
                case Retry():
                    await message.note(ending.reason or "to be retried", failed=True)
                    await message.release(delay=await self._delay(message, ending), reason=ending.reason)
        except ShardqError as error:
            _log.warning("message %s was not settled, and may be delivered again: %s", message.id, error)
        except (Exception, asyncio.CancelledError) as error:  # of a hook
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise  # something has cancelled the task: another one settles the message
            _log.exception("message %s was not settled, and may be delivered again", message.id)
        else:
            done = True
        if message not in self._unsettled:
            return False  # another task has settled it
        if self._unsettled.pop(message) is _UNBEGUN:
            self._claimed -= 1
        return done

    async def _delay(self, message: Message, ending: Retry) -> float:
        after = ending.after
        if after is None:
            settings = await self._consumer._run(self._settings_of, message.queue)  # noqa: SLF001 - of its own package
            after = Backoff(settings.retry_delay, settings.max_retry_delay)
        return after.delay(message.deliveries) if isinstance(after, Backoff) else after

    def _settings_of(self, queue: str) -> QueueSettings:
        return queue_of(self._consumer._sync, queue).settings  # noqa: SLF001 - of its own package
