"""Calling handlers that are async functions: on an event loop in a thread, while the worker waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack
from functools import partial, wraps
from time import perf_counter
from typing import Any

import msgspec

from shardq.aio.message import Batch, Message, acks_of, awaited_handler, observed_coroutine
from shardq.aio.threads import Threads, carried_out, is_abandoned
from shardq.client.batch import Batch as SyncBatch
from shardq.client.queue_internals import chains_of
from shardq.core.hooks import Hooks
from shardq.core.message import Message as SyncMessage
from shardq.worker.attempt import Attempt, EachMessage, Handler, HandlerCalls, WholeBatch
from shardq.worker.gate import Gate
from shardq.worker.loop import CoroutineLoop
from shardq.worker.observed import noted
from shardq.worker.policy import ErrorFunction
from shardq.worker.report import Tally

__all__ = ["HandlerLoop"]


class HandlerLoop(CoroutineLoop):
    """The event loop of the async handlers of a worker, and the threads for the requests of their messages.

    ``interrupt`` closes the gate: a call that is cancelled may wait for a permit.
    """

    def __init__(self, interrupt: Callable[[], None]) -> None:
        super().__init__(interrupt)
        self._renew()

    def _renew(self) -> None:
        self.threads = Threads()
        self._acks = acks_of(self.threads)
        # One call at a time enters a gate: calls that wait for permits could have all threads, and calls that release
        # permits would find none.
        self.entering = asyncio.Lock()

    def calls(
        self, handler: Handler, policy: ErrorFunction, hooks: Hooks | None, *, by_batch: bool
    ) -> HandlerCalls:
        """Return how an async handler is called, with hooks around it."""
        handler = observed_coroutine(hooks, handler)
        if not by_batch:
            return _AllAtOnce(EachMessage(handler, policy), self)

        @wraps(handler)
        def call(batch: SyncBatch) -> object:
            return self.run(_awaited(handler, Batch(batch, self.threads, self._acks)))

        return WholeBatch(call, policy)

    def message(self, message: SyncMessage) -> Message:
        """Return a message whose methods are coroutines."""
        return Message(message, self.threads, self._acks)

    def close(self) -> None:
        """End the loop and the threads. They begin again when they are used."""
        self.begin(self.threads.close(lambda: None)).result()
        super().close()
        self._renew()


async def _awaited(handler: Handler, given: object) -> object:
    made: Any = handler(given)
    return await made


class _AllAtOnce(msgspec.Struct, frozen=True):
    """Calls a handler with all messages of a batch at the same time; with those of a group one after the other.

    Each message passes the gate, and its outcome is noted, in a thread: both may ask the store.
    """

    each: EachMessage
    loop: HandlerLoop

    def run(self, attempt: Attempt, tally: Tally, gate: Gate) -> None:
        """Call the handler, and return when all of its calls have ended."""
        began = perf_counter()
        try:
            self.loop.run(self._work(attempt, tally, gate))
        except CancelledError:  # a handler has cancelled all tasks of the loop: those that ran have failed
            with noted(attempt, tally.observer, perf_counter() - began):
                for message in attempt.running:
                    self.each.note(attempt, tally, message, _raising(asyncio.CancelledError()))
        except BaseException:
            attempt.interrupted += attempt.running
            raise

    async def _work(self, attempt: Attempt, tally: Tally, gate: Gate) -> None:
        run = _Run(attempt, tally, gate, asyncio.Lock(), asyncio.current_task())
        ended = await asyncio.gather(
            *[self._chain(run, chain) for chain in chains_of(attempt.batch)], return_exceptions=True
        )
        for error in filter(None, ended):
            raise error

    async def _chain(self, run: _Run, chain: Sequence[SyncMessage]) -> None:
        """Call the handler with messages one after the other, until the gate is closed or a call has failed."""
        for message in chain:
            async with self.loop.entering:  # in order, and in one thread
                stack = None if run.failed else await self._entered(run, message)
            if stack is None:
                return
            began = perf_counter()
            try:
                outcome = await self._outcome(run, message)
            except GeneratorExit:  # the coroutine is closed, and nothing can be awaited
                stack.close()
                raise
            except BaseException:
                await carried_out(self.loop.threads.run(stack.close))
                raise
            seconds = perf_counter() - began
            try:
                await carried_out(self._ended(run, partial(self._end, run, message, outcome, stack, seconds)))
            except BaseException:
                run.failed = True
                await carried_out(self.loop.threads.run(stack.close))  # if it was cancelled before that
                raise

    async def _entered(self, run: _Run, message: SyncMessage) -> ExitStack | None:
        def enter() -> ExitStack | None:
            with ExitStack() as stack:
                if stack.enter_context(run.gate()) and self.each.begins(run.attempt, message):
                    return stack.pop_all()
            return None

        return await self.loop.threads.undoable(enter, lambda stack: None if stack is None else stack.close())

    async def _outcome(self, run: _Run, message: SyncMessage) -> Callable[[], object]:
        """Call the handler; returns a function that returns or raises as it did."""
        task = asyncio.current_task()
        try:
            handled = _awaited(self.each.handler, self.loop.message(message))
            returned = await awaited_handler(handled, lambda: bool(run.task and run.task.cancelling()))
        except BaseException as error:
            if is_abandoned(task) or (task is not None and task.cancelling()):
                raise  # the worker was interrupted
            return _raising(error)
        return lambda: returned

    async def _ended(self, run: _Run, end: Callable[[], None]) -> None:
        async with run.ending:
            await self.loop.threads.run(end)

    def _end(
        self, run: _Run, message: SyncMessage, outcome: Callable[[], object], stack: ExitStack, seconds: float
    ) -> None:
        with stack, noted(run.attempt, run.tally.observer, seconds):
            self.each.note(run.attempt, run.tally, message, outcome)


class _Run(msgspec.Struct):
    """The state that the calls of one batch share."""

    attempt: Attempt
    tally: Tally
    gate: Gate
    ending: asyncio.Lock
    task: (
        asyncio.Task[None] | None
    )  # which awaits the others, and is cancelled when the worker is interrupted
    failed: bool = False


def _raising(error: BaseException) -> Callable[[], object]:
    def call() -> object:
        raise error

    return call
