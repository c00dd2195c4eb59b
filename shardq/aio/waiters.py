"""Waiting for the store without a thread: the tasks that use one object take turns."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from shardq.aio.sync_core import NothingYet
from shardq.aio.threads import Threads
from shardq.errors import ShardqError

__all__ = ["Waiters"]

_REST_SECONDS = 0.5  # between the end of the last wait and that of listening

R = TypeVar("R")


class Waiters:
    """The tasks that wait for one object of the sync client: the first that came, and the others after it.

    One call of the object is under way at a time, also after a second cancellation.
    """

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self.rest: Callable[[], None] = lambda: None
        """Ends the listening of the object. Called in a thread when no task waits: the listener stays in memory."""
        self._first, self._calling = asyncio.Lock(), asyncio.Lock()
        self._news = threads.sleeper()
        self._resting: asyncio.TimerHandle | asyncio.Future[None] | None = None
        self._nothing_since = 0.0  # when the last try began, if it found nothing

    def wake(self) -> None:
        """Let the first task try again. For any thread."""
        self._threads.wake(self._news.set)

    def wake_here(self) -> None:
        """Let the first task try again. For the loop."""
        self._news.set()

    async def call(self, call: Callable[[], R], undo: Callable[[R], object] = lambda _: None) -> R:
        """Make a call in a thread when no other is under way. A result that nobody takes is undone."""

        def undone(found: R) -> None:
            if found is not None and not isinstance(found, NothingYet):
                undo(found)

        return await self._threads.undoable(call, undone, lock=self._calling)

    async def wait(
        self,
        attempt: Callable[[bool], R | NothingYet],
        seconds: float | None,
        *,
        last_try: Callable[[], R],
        nothing: Callable[[], R],
        undo: Callable[[R], object],
    ) -> R:
        """Make attempts until one finds something. Each after the first one gets True.

        If its turn does not come within ``seconds``, the result is that of ``last_try``. Others end at the same moment.
        One such call that begins after it and finds nothing answers all of them with ``nothing``.
        """
        self._threads.loop()  # else it could wait for a task of another loop
        try:
            async with asyncio.timeout(seconds):
                await self._first.acquire()
        except TimeoutError:
            return await self.call(partial(self._last_try, last_try, nothing, time.monotonic()), undo)
        again = False
        try:
            while True:
                self._news.clear()
                found: R | NothingYet = await self.call(partial(attempt, again), undo)  # type: ignore[arg-type]
                if not isinstance(found, NothingYet):
                    return found
                again = True
                with suppress(TimeoutError):
                    async with asyncio.timeout(max(0.0, found.seconds)):
                        await self._news.wait()
        finally:
            self._first.release()
            if again and self._resting is None:
                self._rest_later()

    def _last_try(self, last_try: Callable[[], R], nothing: Callable[[], R], since: float) -> R:
        if self._nothing_since >= since:
            return nothing()
        began = time.monotonic()
        found = last_try()
        self._nothing_since = 0.0 if found else began
        return found

    def _rest_later(self) -> None:
        with suppress(RuntimeError):  # the loop was closed without cancelling its tasks
            self._resting = asyncio.get_running_loop().call_later(_REST_SECONDS, self._begin_to_rest)

    def _begin_to_rest(self) -> None:
        self._resting = None
        if self._calling.locked():
            self._rest_later()
        elif not self._first.locked() and not self._threads.closed:
            resting = self._resting = asyncio.ensure_future(self._rest_now())
            resting.add_done_callback(self._has_rested)

    async def _rest_now(self) -> None:
        with suppress(ShardqError):  # closed, or away: it listens no longer either
            await self.call(lambda: None if self._first.locked() else self.rest())  # a task may wait by then

    def _has_rested(self, resting: asyncio.Future[None]) -> None:
        self._resting = None
        if resting.cancelled():  # by something else, maybe before it began
            self._rest_later()
