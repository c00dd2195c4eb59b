"""Semaphores with asyncio: a limited number of holders at a time, in all processes that use a store."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from types import TracebackType
from typing import Any, Self
from weakref import WeakKeyDictionary

import shardq.semaphore
from shardq.aio.sync_core import PermitAttempts
from shardq.aio.threads import Threads, Wraps, awaited, carried_out, passed
from shardq.errors import PermitLost

__all__ = ["Permit", "Semaphore"]


class Semaphore(Wraps[shardq.semaphore.Semaphore]):
    """A limited number of holders at a time, as :class:`shardq.Semaphore`. Made by :meth:`shardq.aio.Client.semaphore`.

    The tasks that wait for one object take turns, and need no threads. As an ``async with`` block it takes a permit
    however long that takes.
    """

    def __init__(self, sync: shardq.semaphore.Semaphore, threads: Threads) -> None:
        super().__init__(sync, threads)
        self._first = asyncio.Lock()
        self._entered: WeakKeyDictionary[asyncio.Task[Any], list[Permit]] = WeakKeyDictionary()
        self._wakened = threads.sleeper()
        self._attempts = PermitAttempts(sync, lambda: threads.wake(self._wakened.set))

    name = passed[str]()
    """The semaphore's name."""

    async def permits(self) -> int:
        """Return how many holders there may be. Raises QueueNotFound when the semaphore was deleted."""
        return await self._threads.run(lambda: self._sync.permits)

    async def lease(self) -> float:
        """Return the seconds after which the permit of a holder that died comes back."""
        return await self._threads.run(lambda: self._sync.lease)

    alter = awaited(shardq.semaphore.Semaphore.alter)
    state = awaited(shardq.semaphore.Semaphore.state)

    async def acquire(self, timeout: float | None = None) -> Permit:
        """Take a permit; wait up to ``timeout`` seconds for it (None: for ever). With 0 it does not wait.

        A thread extends its lease until it is released. Cancelled, it returns a permit that it has just taken. Errors
        are those of :meth:`shardq.Semaphore.acquire`.
        """
        if timeout is not None and not timeout > 0:
            return await self._taken_now(timeout)
        until = None if timeout is None else time.monotonic() + timeout
        try:
            async with asyncio.timeout(timeout):
                await self._first.acquire()
        except TimeoutError:
            return await self._taken_now(0.0)
        try:
            while True:
                self._wakened.clear()
                taken = await self._threads.undoable(self._attempts.take, _returned)
                if not isinstance(taken, float):
                    return Permit(taken, self._threads)
                left = taken if until is None else min(taken, until - time.monotonic())
                if left <= 0:
                    return await self._taken_now(0.0)
                with suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await self._wakened.wait()
        finally:
            self._first.release()

    async def _taken_now(self, timeout: float) -> Permit:
        taken = await self._threads.undoable(lambda: self._sync.acquire(timeout), _returned)
        return Permit(taken, self._threads)

    async def __aenter__(self) -> Permit:
        """Take a permit for a block of this task; wait for it as long as it takes."""
        permit = await self.acquire()
        task = asyncio.current_task()
        assert task is not None
        self._entered.setdefault(task, []).append(permit)
        return permit

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        await self._entered[task].pop().__aexit__(kind, error, trace)


class Permit(Wraps[shardq.semaphore.Permit]):
    """A permit of a semaphore, held until :meth:`release` or the end of its ``async with`` block."""

    semaphore = passed[str]()
    """The name of the semaphore."""

    async def lost(self) -> bool:
        """Return whether the lease of the permit has expired, so that another holder may have it."""
        return await self._threads.run(lambda: self._sync.lost)

    check = awaited(shardq.semaphore.Permit.check)

    async def release(self) -> None:
        """Give the permit back, also when this is cancelled. Errors are those of :meth:`shardq.Permit.release`."""
        await carried_out(self._threads.run(self._sync.release))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.release()
        except PermitLost:
            if error is None:
                raise


def _returned(taken: shardq.semaphore.Permit | float) -> None:
    if not isinstance(taken, float):
        taken.release()
