"""Semaphores with asyncio: a limited number of holders at a time, in all processes that use a store."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from types import TracebackType
from typing import Any, Self

import shardq.client.semaphore
from shardq.aio.sync_core import PermitAttempts, timed_out
from shardq.aio.threads import Threads, Wraps, awaited, carried_out, passed
from shardq.aio.waiters import Waiters
from shardq.errors import PermitLost

__all__ = ["Permit", "Semaphore"]


class Semaphore(Wraps[shardq.client.semaphore.Semaphore]):
    """A limited number of holders at a time, as :class:`shardq.Semaphore`. Made by :meth:`shardq.aio.Client.semaphore`.

    The tasks that wait for one object take turns, and need no threads. As an ``async with`` block it takes a permit
    however long that takes.
    """

    def __init__(self, sync: shardq.client.semaphore.Semaphore, threads: Threads) -> None:
        super().__init__(sync, threads)
        self._entered: dict[asyncio.Task[Any] | None, list[Permit]] = {}
        self._waiters = Waiters(threads)
        self._attempts = PermitAttempts(sync, self._waiters.wake)
        self._waiters.rest = self._attempts.rest

    name = passed[str]()
    """The semaphore's name."""

    async def permits(self) -> int:
        """Return how many holders there may be. Raises QueueNotFound when the semaphore was deleted."""
        return await self._threads.run(lambda: self._sync.permits)

    async def lease(self) -> float:
        """Return the seconds after which the permit of a holder that died comes back."""
        return await self._threads.run(lambda: self._sync.lease)

    alter = awaited(shardq.client.semaphore.Semaphore.alter)
    state = awaited(shardq.client.semaphore.Semaphore.state)

    async def acquire(self, timeout: float | None = None) -> Permit:
        """Take a permit; wait up to ``timeout`` seconds for it (None: for ever). With 0 it does not wait.

        A thread extends its lease until it is released. Cancelled, it returns a permit that it has just taken. Errors
        are those of :meth:`shardq.Semaphore.acquire`.
        """
        if timeout is not None and not timeout > 0:
            return Permit(
                await self._threads.undoable(lambda: self._sync.acquire(timeout), _returned), self._threads
            )
        take = partial(self._attempts.take, None if timeout is None else time.monotonic() + timeout)
        taken = await self._waiters.wait(
            lambda _: take(), timeout, last_try=self._attempts.take_now, nothing=lambda: None, undo=_returned
        )
        if taken is None:
            raise await self._threads.run(timed_out, self._sync)
        return Permit(taken, self._threads)

    async def __aenter__(self) -> Permit:
        """Take a permit for a block of this task; wait for it as long as it takes."""
        permit = await self.acquire()
        self._entered.setdefault(asyncio.current_task(), []).append(permit)
        return permit

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task = asyncio.current_task()
        if (
            task not in self._entered
        ):  # the block is left in another task than it was entered in, as by a fixture
            ended: list[asyncio.Task[Any] | None] = [
                each for each in self._entered if each is not None and each.done()
            ]
            task = (ended or list(self._entered))[-1]
        permit = self._entered[task].pop()
        if not self._entered[task]:
            del self._entered[task]
        await permit.__aexit__(kind, error, trace)


class Permit(Wraps[shardq.client.semaphore.Permit]):
    """A permit of a semaphore, held until :meth:`release` or the end of its ``async with`` block."""

    semaphore = passed[str]()
    """The name of the semaphore."""

    async def lost(self) -> bool:
        """Return whether the lease of the permit has expired, so that another holder may have it."""
        return await self._threads.run(lambda: self._sync.lost)

    check = awaited(shardq.client.semaphore.Permit.check)

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


def _returned(taken: shardq.client.semaphore.Permit | None) -> None:
    if taken is not None:
        taken.release()
