"""Reads that viewers share, and the ticks that have their pages read again."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from typing import Any, Self, TypeVar, cast

import msgspec

__all__ = ["FRESH_SECONDS", "SHARE_OF_TIME", "PageReads", "SharedReads", "Ticks"]

T = TypeVar("T")

FRESH_SECONDS = 1.5
"""For so long after its end a read is the answer to others. Less than a tick, so each tick reads anew."""

TICK_SECONDS = 2.0
SHARE_OF_TIME = 0.01
"""The share of the time that open pages may cost the store: reads of a page, and rounds of the survey."""

MOST_LISTENERS = 200
MOST_OF_A_KEY = 50
"""Of the listeners, so that one key does not keep the pages of all others from being updated."""


# When each read of a page began and ended.
_reads_of_page: ContextVar[list[tuple[float, float]]] = ContextVar("shardq_reads_of_page")


class PageReads:
    """Collects the reads whose answers a block uses, also those that were made for another viewer.

    So all viewers of a page agree on how long it takes to read, and leave out the same ticks.
    """

    def __init__(self) -> None:
        self._made: list[tuple[float, float]] = []

    def __enter__(self) -> Self:
        self._token = _reads_of_page.set(self._made)
        return self

    def __exit__(self, *_: object) -> None:
        _reads_of_page.reset(self._token)

    @property
    def seconds(self) -> float:
        """The seconds in which at least one of them was made."""
        total, until = 0.0, -math.inf
        for began, ended in sorted(self._made):
            total += max(0.0, ended - max(began, until))
            until = max(until, ended)
        return total


class _Read(msgspec.Struct):
    task: asyncio.Task[Any]
    began: float
    ended: float | None = None


class SharedReads:
    """Makes each read once for all who ask for it at about the same time.

    A read that many wait for is one request to the store, also while the store does not answer. It is a cache of at
    most 1.5 seconds: an action of this process drops it, and one of another process is seen that much later.
    The first read after that time drops the answers that are older.
    """

    def __init__(self, fresh: float = FRESH_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._fresh, self._clock = fresh, clock
        self._reads: dict[Hashable, _Read] = {}
        self._dropped_at = clock()

    async def read(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> T:
        """Return what ``make`` returns, or what it returned to another caller a moment ago. Errors are shared too."""
        found = self._reads.get(key)
        if found is None or (found.ended is not None and self._clock() - found.ended >= self._fresh):
            self._drop_old()
            found = self._reads[key] = _Read(asyncio.ensure_future(self._made(make)), self._clock())
            found.task.add_done_callback(partial(self._end, found))
        answer = cast("T", await asyncio.shield(found.task))  # a viewer that leaves ends no read of others
        _reads_of_page.get([]).append((found.began, self._clock() if found.ended is None else found.ended))
        return answer

    def forget(self) -> None:
        """Have everything read anew, as an action has changed it."""
        self._reads.clear()

    @staticmethod
    async def _made(make: Callable[[], Awaitable[T]]) -> T:
        return await make()

    def _end(self, read: _Read, task: asyncio.Task[Any]) -> None:
        read.ended = self._clock()
        if not task.cancelled():
            task.exception()  # those who waited for it may all have left

    def _drop_old(self) -> None:
        now = self._clock()
        if now - self._dropped_at >= self._fresh:
            self._dropped_at = now
            self._reads = {
                key: read
                for key, read in self._reads.items()
                if read.ended is None or now - read.ended < self._fresh
            }


class Ticks:
    """Has all open pages read again at once. Without listeners nothing runs.

    Ticks are numbered, so that pages that take long to read leave out the same ones. ``share`` is the part of the time
    that reading a page may take.
    """

    def __init__(self, seconds: float = TICK_SECONDS, share: float = SHARE_OF_TIME) -> None:
        self._seconds, self._share, self._number = seconds, share, 0
        self._listeners: dict[asyncio.Queue[bytes | None], str | None] = {}  # each with its key
        self._ticking: asyncio.Task[None] | None = None
        self._stopped = False

    def is_full(self, key: str | None = None) -> bool:
        """Return whether no more listeners are taken, at all or with this key."""
        own = 0 if key is None else sum(each == key for each in self._listeners.values())
        return self._stopped or len(self._listeners) >= MOST_LISTENERS or own >= MOST_OF_A_KEY

    async def events(
        self, key: str | None = None, may: Callable[[], bool] = lambda: True
    ) -> AsyncGenerator[bytes, None]:
        """Yield server-sent events until the service stops, or ``may`` returns False before one of them.

        A listener beyond the bounds gets none.
        """
        if self.is_full(key):  # others have come since the request was let in; the browser tries again
            return
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(2)
        self._listeners[queue] = key
        if self._ticking is None or self._ticking.done():
            self._ticking = asyncio.ensure_future(self._tick())
        try:
            yield b"retry: 3000\n\n"
            while not self._stopped and (event := await queue.get()) is not None and may():
                yield event
        finally:
            del self._listeners[queue]

    def stop(self) -> None:
        """End all streams of events, so that a server can shut down."""
        self._stopped = True
        for queue in self._listeners:
            _put(queue, None)

    async def _tick(self) -> None:
        while self._listeners and not self._stopped:
            await asyncio.sleep(self._seconds)
            self._number += 1
            data = {"number": self._number, "seconds": self._seconds, "share": self._share}
            event = b"event: tick\ndata: " + msgspec.json.encode(data) + b"\n\n"
            for queue in tuple(self._listeners):
                _put(queue, event)


def _put(queue: asyncio.Queue[bytes | None], event: bytes | None) -> None:
    if event is None:
        while not queue.empty():
            queue.get_nowait()
    with suppress(asyncio.QueueFull):  # who reads slowly misses ticks
        queue.put_nowait(event)
