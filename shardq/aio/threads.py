"""The threads of an asyncio client: they make the blocking calls, and a loop awaits these."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from contextvars import copy_context
from functools import partial, wraps
from itertools import islice
from operator import attrgetter
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar
from weakref import WeakSet

from shardq.base.texts import shown
from shardq.errors import Closed, ShardqError, StoreUnavailable
from shardq.storage.per_process import forks

__all__ = ["MOST_THREADS", "Threads", "Wraps", "awaited", "carried_out", "in_loop", "is_abandoned", "passed"]

MOST_THREADS = 64
_PAGE = 500  # of what is iterated over
_CLOSED_CHECK_SECONDS = 1.0  # between two checks whether a loop was closed

_CLOSED = "this asyncio client is closed: open another one with shardq.aio.connect() or client.transaction()"
_ENDED = (
    "the main thread has ended, so Python makes no calls in threads: join the threads of event loops in it"
)

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")


class Threads:
    """Up to 64 threads for the blocking calls of one client, and of one event loop.

    A call that was begun runs to its end. The task that awaits it may be cancelled: then CancelledError is raised when
    the call has ended. Its cause is the error of the call; if there was none, a note says ``carried out``. A second
    cancellation does not wait for that. A call that was not begun is not made.

    A thread that ``joins`` a transaction of the application makes the last call, too, behind all others. No call begins
    while the application's own statement holds the lock ``busy`` of their connection.
    """

    def __init__(
        self, most: int = MOST_THREADS, *, joins: bool = False, busy: asyncio.Lock | None = None
    ) -> None:
        self._joins = joins
        self.busy = busy
        self._begun = (
            threading.Event()
        )  # a thread of the pool runs, and continues until the pool is shut down
        self._pool = ThreadPoolExecutor(most, thread_name_prefix="shardq-aio", initializer=self._begun.set)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._generation = forks.count
        self._undoing: set[Future[None]] = set()
        self._sleepers: WeakSet[asyncio.Event] = WeakSet()
        self.closed = False
        """True after :meth:`close`."""

    def loop(self) -> asyncio.AbstractEventLoop:
        """Return the running loop, which the first call decides. Raises Closed after a close, a fork, or in another."""
        if self._generation != forks.count:  # where no loop runs, even if this is called in one
            raise Closed(
                "this asyncio client belongs to the parent process: connect with shardq.aio.connect() in this process"
            )
        running = asyncio.get_running_loop()
        if running is not self._loop or self.closed:
            self._check_open()
            self._loop = running
        return running

    def _check_open(self) -> None:
        if self.closed:
            raise Closed(_CLOSED)
        if self._loop is not None:
            ended = "has been closed" if self._loop.is_closed() else "is another one"
            raise Closed(
                f"the event loop that this asyncio client belongs to {ended}: "
                "connect with shardq.aio.connect() in each loop"
            )

    async def free(self) -> None:
        """Wait for the end of the application's own statement. Cancelled, nothing was begun."""
        while self.busy is not None and self.busy.locked():
            async with self.busy:
                pass
        self.loop()  # may have been closed meanwhile

    def sleeper(self) -> asyncio.Event:
        """Return an event that is also set when the client is closed."""
        event = asyncio.Event()
        self._sleepers.add(event)
        return event

    def submit(self, call: Callable[[], R], *, apart: bool = False) -> Future[R]:
        """Make a call in a thread; ``apart`` in a separate one, for a call that may wait for others.

        Raises Closed after a close, and StoreUnavailable when no thread can be started. The call is not made then.
        """
        future: Future[R] = Future()

        def run() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:
                    future.set_exception(error)

        try:
            if apart:
                threading.Thread(target=run, name="shardq-aio-apart", daemon=True).start()
            else:
                self._pool.submit(run)
        except RuntimeError as error:
            if self.closed:
                raise Closed(_CLOSED) from error
            if str(error).startswith("cannot schedule new futures"):  # the pool takes no calls any more
                raise Closed(_ENDED) from error
            # The pool has taken the call by then. If it has threads, they make it; without one, nothing does.
            if (apart or not self._begun.is_set()) and future.cancel():
                if str(error).endswith("at interpreter shutdown"):  # from Python 3.12 on
                    raise Closed(_ENDED) from error
                raise StoreUnavailable(f"the store was not asked: {error}; free memory or threads") from error
        return future

    def wake(self, callback: Callable[[], object]) -> None:
        """Call something in the loop, from any thread; never after the loop was closed."""
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(callback)

    async def run(self, call: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Make a call in a thread and return its result."""
        return await self.undoable(partial(call, *args, **kwargs))

    async def undoable(
        self,
        call: Callable[[], R],
        undo: Callable[[R], object] | None = None,
        *,
        apart: bool = False,
        lock: asyncio.Lock | None = None,
    ) -> R:
        """Make a call in a thread and return its result. If nobody takes the result, ``undo`` gets it, in a thread.

        The call runs in a copy of the task's context, as with ``asyncio.to_thread``. The ``lock`` is held until the
        call has ended, however often this is cancelled.
        """
        self.loop()
        if self.busy is not None:
            await self.free()
        if lock is not None:
            await lock.acquire()
        try:
            future = self.submit(partial(copy_context().run, call), apart=apart)
        except BaseException:
            if lock is not None:
                lock.release()
            raise
        if lock is not None:
            future.add_done_callback(lambda _: self.wake(lock.release))
        try:
            await self._end_of(future)
            return future.result()
        except asyncio.CancelledError as cancelled:
            if future.cancel():
                raise
            await self._end_of(future if undo is None else self._undone(future, undo))
            if (error := future.exception()) is not None:
                raise cancelled from error
            if undo is None:
                cancelled.add_note(f"carried out: {shown(future.result())}")
            raise
        finally:
            del future  # its error has this frame, and its result should end with its last user

    async def _end_of(self, future: Future[Any]) -> None:
        """Wait until a call has ended. The loop's own way has cycles that keep the result until they are collected."""
        waiter = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda _: self.wake(partial(_end, waiter)))
        del future  # a CancelledError has this frame
        await waiter

    def _undone(self, future: Future[R], undo: Callable[[R], object]) -> Future[None]:
        undone: Future[None] = Future()
        self._undoing.add(undone)
        undone.add_done_callback(self._undoing.discard)

        def run(done: Future[R]) -> None:
            try:
                if done.exception() is None:
                    undo(done.result())
            except Exception:  # the lease that was to be released expires
                pass
            finally:
                undone.set_result(None)

        def start(done: Future[R]) -> None:
            try:
                self.submit(partial(run, done))
            except (
                ShardqError
            ):  # the client was closed meanwhile, or no thread begins: the lease expires automatically
                undone.set_result(None)

        future.add_done_callback(start)  # done already, it is called in the loop
        return undone

    async def iterate(self, start: Callable[[], Iterator[R]]) -> AsyncIterator[R]:
        """Yield the items of an iterator, which is read in threads, up to 500 at a time."""
        iterator = await self.run(start)
        while page := await self.run(lambda: list(islice(iterator, _PAGE))):
            for each in page:
                yield each

    async def close(self, close: Callable[[], None]) -> None:
        """Make the last call, when the results that nobody took are undone, and end the threads.

        It may be made in another loop if that of the client is closed.
        """
        if self.closed or self._generation != forks.count:
            return
        if self._loop is not None and self._loop.is_closed():
            self._loop = None
        self.loop()
        self.busy = None  # a close asks the store for nothing
        if self._undoing:
            await asyncio.gather(*map(self._end_of, tuple(self._undoing)))
        try:
            # Apart, as calls that wait for the store may have all threads.
            await self.undoable(close, apart=not self._joins)
        finally:
            self.closed = True
            self._pool.shutdown(wait=False)
            for event in self._sleepers:
                event.set()


def _end(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


async def carried_out(call: Coroutine[Any, Any, R]) -> R:
    """Await a call that gives something back, which is also made when its task is cancelled before it was begun."""
    task = asyncio.ensure_future(call)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError as cancelled:
        await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()) is not None:
            raise cancelled from error
        raise


def is_abandoned(task: asyncio.Task[Any] | None) -> bool:
    """Return whether the task's coroutine was closed and gets a GeneratorExit, as no loop runs it any more."""
    try:
        return asyncio.current_task() is not task
    except RuntimeError:  # no loop runs in this thread
        return True


def in_loop(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine in a loop and return its result, in another thread. Raises Closed if the loop is closed."""
    try:
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
    except RuntimeError as error:
        coroutine.close()
        raise Closed("the event loop was closed while a thread worked for it") from error
    while not wait([future], _CLOSED_CHECK_SECONDS).done:
        if loop.is_closed():  # without cancelling its tasks
            raise Closed("the event loop was closed while a thread worked for it")
    try:
        return future.result()
    except CancelledError:
        raise Closed("the event loop has cancelled what a thread waited for") from None


class Wraps(Generic[S]):
    """An object of the sync client, whose blocking methods are coroutines here."""

    def __init__(self, sync: S, threads: Threads) -> None:
        self._sync, self._threads = sync, threads

    async def _run(self, call: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._threads.run(call, *args, **kwargs)

    def __repr__(self) -> str:
        return f"<aio {self._sync!r}>"


def awaited(
    method: Callable[Concatenate[S, P], R],
) -> Callable[Concatenate[Wraps[S], P], Coroutine[Any, Any, R]]:
    """Return a method of the sync client as a coroutine, with its arguments, result, errors and documentation."""

    @wraps(method)
    async def call(wrapper: Wraps[S], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await wrapper._run(method, wrapper._sync, *args, **kwargs)  # noqa: SLF001 - its own

    return call


class passed(Generic[T]):  # noqa: N801 - it is used as a decorator is
    """A property of the object of the sync client, which asks no store."""

    def __set_name__(self, owner: type[object], name: str) -> None:
        self._read = attrgetter(f"_sync.{name}")

    def __get__(self, instance: Wraps[Any], owner: type[object]) -> T:
        return self._read(instance)  # type: ignore[no-any-return]
