"""Joining the requests that the coroutines of a loop make at the same time into one call in a thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Generic, TypeAlias, TypeVar

from shardq.aio.sync_core import for_another_thread
from shardq.aio.threads import Threads
from shardq.base.texts import shown
from shardq.errors import ShardqError

__all__ = ["CoroutineGroupCommit", "Outcome"]

_TURN = 50  # coroutines that continue in one turn of the loop
_SLOW = 0.05  # seconds after which a call lets the next one begin beside it
_MOST_BESIDE = 4  # calls at a time: a store that does not answer at all must not get all threads

R = TypeVar("R")
T = TypeVar("T")
Outcome: TypeAlias = tuple[R | None, BaseException | None]
"""The result or the error of one item."""


class _Entry(Generic[T, R]):
    """The request of one coroutine that is joined with others."""

    __slots__ = ("asked", "begun", "future", "item", "outcome", "repeated")

    def __init__(self, item: T, future: asyncio.Future[R]) -> None:
        self.item, self.future = item, future
        self.begun = self.repeated = False
        self.asked = time.monotonic()
        self.outcome: Outcome[R] | None = None

    def end(self, outcome: Outcome[R]) -> None:
        self.outcome = result, error = outcome
        if not self.future.done():
            if error is None:
                self.future.set_result(result)  # type: ignore[arg-type]
            else:
                self.future.set_exception(error)
                self.future.exception()  # who was cancelled twice does not ask for it


class CoroutineGroupCommit(Generic[T, R]):
    """Joins the requests of a loop's coroutines in the same turn of it, and meanwhile, into one call in a thread.

    ``do`` makes the call, for up to ``most`` items, and returns the outcome of each. It is also given the moment of
    ``time.monotonic()`` at which the last of them was asked for. It may return fewer outcomes, one at least: the other
    items go first in the next call. One call is under way at a time, so the items of one coroutine after the other keep
    their order. Cancellation is as in :class:`Threads`.

    If the items need no order (``in_order=False``), a call that takes long lets the next one begin. An item for which
    ``do`` returns None is handed to the group commit ``again``.
    """

    def __init__(
        self,
        threads: Threads,
        do: Callable[[Sequence[T], float], Sequence[Outcome[R] | None]],
        *,
        most: int,
        linger: float = 0.0,
        in_order: bool = True,
        again: CoroutineGroupCommit[T, R] | None = None,
    ) -> None:
        self._threads, self._do, self._most, self._linger = threads, do, most, linger
        self._in_order, self._again = in_order, again
        self._waiting: list[_Entry[T, R]] = []
        self._calls: set[object] = set()  # under way
        self._last: object | None = None  # the call that keeps the next one from beginning

    async def submit(self, item: T) -> R:
        """Do it together with others; return its own result, or raise its own error."""
        loop = self._threads.loop()
        if self._threads.busy is not None:
            await self._threads.free()
        entry: _Entry[T, R] = _Entry(item, loop.create_future())
        self.add(entry)
        try:
            return await entry.future
        except asyncio.CancelledError as cancelled:
            if not entry.begun:
                self._waiting.remove(entry)
                raise
            if entry.outcome is None:
                entry.future = loop.create_future()
                await asyncio.wait([entry.future])
            assert entry.outcome is not None
            result, error = entry.outcome
            if error is not None:
                raise cancelled from error
            cancelled.add_note(f"carried out: {shown(result)}")
            raise

    def add(self, entry: _Entry[T, R]) -> None:
        """Do the request of a coroutine with the next call."""
        self._waiting.append(entry)
        if self._last is None:
            self._last = object()
            loop = asyncio.get_running_loop()
            if self._linger:
                loop.call_later(self._linger, self._begin, self._last)
            else:
                loop.call_soon(self._begin, self._last)

    def _begin(self, after: object) -> None:
        """Begin the next call after another one, unless that was done already."""
        if self._last is not None and self._last is not after:
            return
        if not self._waiting:
            self._last = None
            return
        call = object()
        entries, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
        try:
            self._call(call, entries)
        except BaseException as error:  # closed, no thread, or Ctrl-C, after which the call may have begun
            self._end(call, entries, _failed(entries, error))
            if not isinstance(error, ShardqError):
                raise

    def _call(self, call: object, entries: Sequence[_Entry[T, R]]) -> None:
        self._last = call
        self._calls.add(call)
        for entry in entries:
            entry.begun = True
        items, since = [entry.item for entry in entries], entries[-1].asked
        future = self._threads.submit(lambda: self._do(items, since))
        future.add_done_callback(
            lambda done: self._threads.wake(partial(self._end, call, entries, _outcomes(entries, done)))
        )
        if not self._in_order:
            asyncio.get_running_loop().call_later(_SLOW, self._overtake, call)

    def _overtake(self, call: object) -> None:
        if self._last is not call:
            return
        if len(self._calls) < _MOST_BESIDE:
            self._begin(call)
        else:
            asyncio.get_running_loop().call_later(_SLOW, self._overtake, call)

    def _end(
        self, call: object, entries: Sequence[_Entry[T, R]], outcomes: Sequence[Outcome[R] | None]
    ) -> None:
        try:
            self._end_some(call, entries, outcomes)
        except BaseException:  # Ctrl-C raises between two steps: all of it again if the loop continues
            asyncio.get_running_loop().call_soon(self._end, call, entries, outcomes)
            raise

    def _end_some(
        self, call: object, entries: Sequence[_Entry[T, R]], outcomes: Sequence[Outcome[R] | None]
    ) -> None:
        for entry, outcome in zip(entries[:_TURN], outcomes, strict=False):
            if outcome is not None:
                entry.end(outcome)
            elif self._again is not None and not entry.repeated:
                entry.repeated = True
                self._again.add(entry)
        # After the coroutines that these wake, so that their next requests go together.
        loop = asyncio.get_running_loop()
        if len(outcomes) > _TURN:
            loop.call_soon(self._end, call, entries[_TURN:], outcomes[_TURN:])
            return
        if left := dict.fromkeys(entries[len(outcomes) :]):
            self._waiting = [*left, *[each for each in self._waiting if each not in left]]
        self._calls.discard(call)
        loop.call_soon(self._begin, call)


def _outcomes(
    entries: Sequence[object], done: Future[Sequence[Outcome[R] | None]]
) -> Sequence[Outcome[R] | None]:
    error = done.exception()
    return done.result() if error is None else _failed(entries, error)


def _failed(entries: Sequence[object], error: BaseException) -> Sequence[Outcome[R]]:
    return [(None, for_another_thread(error)) for _ in entries]
