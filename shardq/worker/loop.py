"""An event loop in its own thread, for handlers and tasks that are async functions."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future, wait
from functools import partial
from typing import Any, TypeVar

from shardq.base.log import Log
from shardq.base.waits import BackgroundThread, Flag

__all__ = ["CoroutineLoop"]

_log = Log(__name__)

T = TypeVar("T")

CANCEL_CHECK_SECONDS = 1.0  # between two reads of whether a coroutine is to be cancelled
LONGEST_CANCEL_CHECK_SECONDS = 30.0  # of one that runs for long


class CoroutineLoop:
    """An event loop in its own thread. It begins with the first coroutine.

    ``interrupt`` is called before Ctrl-C cancels a coroutine.
    """

    def __init__(self, interrupt: Callable[[], None] = lambda: None) -> None:
        self._interrupt = interrupt
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = BackgroundThread("shardq-loop")
        self._over = Flag()

    def begin(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin to run a coroutine, from another thread."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._begun())

    def run(self, coroutine: Coroutine[Any, Any, T], is_cancelled: Callable[[], bool] | None = None) -> T:
        """Run a coroutine from another thread, and wait for its end. Ctrl-C cancels it, and is raised after its end.

        It is cancelled too when ``is_cancelled()`` is true, which is called every second at first, and every 30 seconds
        at last. A cancelled coroutine raises CancelledError, unless it returns a value all the same, also when it has
        cancelled its own task just before.
        """
        tasks: list[asyncio.Task[Any]] = []
        returned: list[T] = []

        async def noted() -> None:
            tasks.extend(filter(None, [asyncio.current_task()]))
            returned.append(await coroutine)  # a task that was cancelled at its end loses its result

        began = time.monotonic()
        due = began + _next_cancel_check(began)
        loop = self._begun()
        try:
            future = asyncio.run_coroutine_threadsafe(noted(), loop)
            # A wait without an end would delay the handler of a signal that arrives just before it begins.
            while not wait([future], CANCEL_CHECK_SECONDS).done:
                if is_cancelled is None or time.monotonic() < due:
                    continue
                due = time.monotonic() + _next_cancel_check(began)
                if is_cancelled():
                    is_cancelled = None
                    self.begin(_cancel(tasks))
        except BaseException:
            self._interrupt()
            asyncio.run_coroutine_threadsafe(_end(tasks), loop).result()
            raise
        if not returned:
            future.result()
        return returned[0]

    def close(self) -> None:
        """End the loop and its thread. Coroutines that still run on it are cancelled."""
        if self._loop is not None and not self._thread.has_ended:
            asyncio.run_coroutine_threadsafe(_cancel_all(), self._loop).result()
            self._over.set()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self._loop = None

    def _begun(self) -> asyncio.AbstractEventLoop:
        new = None
        with self._lock:
            if self._loop is None or self._thread.has_ended:  # which was interrupted before it began
                self._loop = asyncio.new_event_loop()
                self._over.clear()
                new = self._thread.prepare(partial(_run_on, self._loop, self._over))
            loop = self._loop
        if new is not None and not self._thread.begin(new):
            raise RuntimeError("no thread can be started for async functions: end other threads")
        return loop


def _run_on(loop: asyncio.AbstractEventLoop, over: Flag) -> None:
    """Run a loop until it is closed. A coroutine that raises an exit ends it too, or stops it."""
    while not over.is_set():
        try:
            loop.run_forever()
        except (SystemExit, KeyboardInterrupt) as exit_:
            _log.debug("an async function raised %r: the event loop continues", exit_)


def _next_cancel_check(began: float) -> float:
    """Return in how many seconds to ask next whether a coroutine that began then is to be cancelled."""
    return min(LONGEST_CANCEL_CHECK_SECONDS, max(CANCEL_CHECK_SECONDS, (time.monotonic() - began) / 20))


async def _cancel(tasks: Iterable[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()


async def _cancel_all() -> None:
    await _end([each for each in asyncio.all_tasks() if each is not asyncio.current_task()])


async def _end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    await _cancel(tasks)
    await asyncio.gather(*tasks, return_exceptions=True)
