"""Cancelling a coroutine at each of its awaits in turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from typing import Any


class AtAwait:
    """Awaits a coroutine, and cancels the task when it has suspended for the given number of times.

    The cancellation comes after the loop has gone on for ``turns``, and ``seconds``, if it is still suspended then.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, Any], number: int, turns: int, seconds: float) -> None:
        self._coroutine, self._left, self._turns, self._seconds = coroutine, number, turns, seconds
        self.reached = False

    def __await__(self) -> Generator[Any, Any, Any]:
        send: Callable[[], Any] = lambda: self._coroutine.send(None)  # noqa: E731
        while True:
            try:
                suspended = send()
            except StopIteration as ended:
                return ended.value
            self._left -= 1
            if self._left == 0:
                self.reached = True
                task = asyncio.current_task()
                assert task is not None
                self._cancel(task, self._turns)
            try:
                yield suspended
            except BaseException as error:
                send = self._throw(error)
            else:
                send = lambda: self._coroutine.send(None)  # noqa: E731

    def _throw(self, error: BaseException) -> Callable[[], Any]:
        return lambda: self._coroutine.throw(error)

    def _cancel(self, task: asyncio.Task[Any], turns: int) -> None:
        if turns:
            asyncio.get_running_loop().call_soon(self._cancel, task, turns - 1)
        elif self._seconds:
            asyncio.get_running_loop().call_later(self._seconds, task.cancel)
        else:
            task.cancel()


async def each_cancelled(
    call: Callable[[], Coroutine[Any, Any, Any]], *, turns: int = 0, seconds: float = 0.0
) -> AsyncIterator[asyncio.CancelledError | None]:
    """Make a call again and again, cancelled at its first await, its second one, and so on until it has no more.

    Yields the error of each call; None if it had ended before it was cancelled.
    """
    number = 1
    while True:
        cancelled = AtAwait(call(), number, turns, seconds)
        task = asyncio.ensure_future(_awaited(cancelled))
        error: asyncio.CancelledError | None = None
        try:
            await task
        except asyncio.CancelledError as raised:
            error = raised
        yield error
        if not cancelled.reached:
            return
        number += 1


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable
