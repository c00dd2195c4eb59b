"""The threads of an asyncio client: they make the blocking calls, and a loop awaits these."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial, wraps
from itertools import islice
from operator import attrgetter
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar
from weakref import WeakSet

from shardq.aio.sync_core import for_another_thread
from shardq.base.texts import shown
from shardq.errors import Closed
from shardq.storage.per_process import forks

__all__ = ["MOST_THREADS", "Gathering", "Threads", "Wraps", "awaited", "carried_out", "passed"]

MOST_THREADS = 64
_PAGE = 500  # of what is iterated over
_TURN = 50  # coroutines that continue in one turn of the loop

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")


class Threads:
    """Up to 64 threads for the blocking calls of one client, and of one event loop.

    A call that was begun runs to its end. The task that awaits it may be cancelled: then CancelledError is raised when
    the call has ended. Its cause is the error of the call; if there was none, a note says ``carried out``. A second
    cancellation does not wait for that. A call that was not begun is not made.
    """

    def __init__(self, most: int = MOST_THREADS) -> None:
        self._pool = ThreadPoolExecutor(most, thread_name_prefix="shardq-aio")
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
            raise Closed("this asyncio client is closed: open another one with shardq.aio.connect()")
        if self._loop is not None:
            ended = "has been closed" if self._loop.is_closed() else "is another one"
            raise Closed(
                f"the event loop that this asyncio client belongs to {ended}: "
                "connect with shardq.aio.connect() in each loop"
            )

    def sleeper(self) -> asyncio.Event:
        """Return an event that is also set when the client is closed."""
        event = asyncio.Event()
        self._sleepers.add(event)
        return event

    def submit(self, call: Callable[[], R], *, apart: bool = False) -> Future[R]:
        """Make a call in a thread; ``apart`` in a separate one, for a call that may wait for others."""
        if not apart:
            return self._pool.submit(call)
        future: Future[R] = Future()

        def run() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:
                    future.set_exception(error)

        threading.Thread(target=run, name="shardq-aio-apart", daemon=True).start()
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
        interrupt: Callable[[], None] = lambda: None,
        apart: bool = False,
    ) -> R:
        """Make a call in a thread and return its result. If nobody takes the result, ``undo`` gets it, in a thread.

        When it is cancelled, ``interrupt`` is called first, so that the call ends soon.
        """
        self.loop()
        future = self.submit(call, apart=apart)
        try:
            await self._end_of(future)
            return future.result()
        except asyncio.CancelledError as cancelled:
            if future.cancel():
                raise
            interrupt()
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
        await waiter

    def _undone(self, future: Future[R], undo: Callable[[R], object]) -> Future[None]:
        undone: Future[None] = Future()
        self._undoing.add(undone)
        undone.add_done_callback(self._undoing.discard)

        def run() -> None:
            try:
                if future.exception() is None:
                    undo(future.result())
            except Exception:  # the lease that was to be released expires
                pass
            finally:
                undone.set_result(None)

        def start(_: Future[R]) -> None:
            try:
                self._pool.submit(run)
            except RuntimeError:  # the client was closed meanwhile: the lease expires automatically
                undone.set_result(None)

        future.add_done_callback(start)  # done already, it is called in the loop
        return undone

    async def iterate(self, start: Callable[[], Iterator[R]]) -> AsyncIterator[R]:
        """Yield what an iterator gives, which is read in threads, up to 500 at a time."""
        iterator = await self.run(start)
        while page := await self.run(lambda: list(islice(iterator, _PAGE))):
            for each in page:
                yield each

    async def close(self, close: Callable[[], None]) -> None:
        """Make the last call, when the results that nobody took are undone, and end the threads."""
        if self.closed or self._generation != forks.count:
            return
        self.loop()
        if self._undoing:
            await asyncio.gather(*map(self._end_of, tuple(self._undoing)))
        try:
            await self.undoable(close, apart=True)  # calls that wait for the store may have all threads
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


class _Entry(Generic[T, R]):
    """The request of one coroutine that is gathered."""

    __slots__ = ("begun", "future", "item", "outcome")

    def __init__(self, item: T, future: asyncio.Future[R]) -> None:
        self.item, self.future, self.begun = item, future, False
        self.outcome: tuple[R | None, BaseException | None] | None = None

    def end(self, result: R | None, error: BaseException | None) -> None:
        self.outcome = result, error
        if not self.future.done():
            if error is None:
                self.future.set_result(result)  # type: ignore[arg-type]
            else:
                self.future.set_exception(error)
                self.future.exception()  # who was cancelled twice does not ask for it


class Gathering(Generic[T, R]):
    """Joins what the coroutines of a loop ask for in the same turn of it, and meanwhile, into one call in a thread.

    ``do`` makes the call, for up to ``most`` items, and returns the result and the error of each. One call is under way
    at a time, so the items of one coroutine after the other keep their order. Cancellation is as in :class:`Threads`.
    """

    def __init__(
        self,
        threads: Threads,
        do: Callable[[Sequence[T]], Sequence[tuple[R | None, BaseException | None]]],
        *,
        most: int,
        linger: float = 0.0,
    ) -> None:
        self._threads, self._do, self._most, self._linger = threads, do, most, linger
        self._waiting: list[_Entry[T, R]] = []
        self._busy = False

    async def submit(self, item: T) -> R:
        """Do it together with others; return its own result, or raise its own error."""
        loop = self._threads.loop()
        entry: _Entry[T, R] = _Entry(item, loop.create_future())
        self._waiting.append(entry)
        if not self._busy:
            self._busy = True
            if self._linger:
                loop.call_later(self._linger, self._begin)
            else:
                loop.call_soon(self._begin)
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

    def _begin(self) -> None:
        if not self._waiting:
            self._busy = False
            return
        entries, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
        for entry in entries:
            entry.begun = True
        items = [entry.item for entry in entries]
        try:
            future = self._threads.submit(lambda: self._do(items))
        except RuntimeError:  # the client was closed meanwhile
            self._fail(entries, Closed("this asyncio client is closed: open another one"))
            return
        future.add_done_callback(lambda done: self._threads.wake(lambda: self._ended(entries, done)))

    def _ended(
        self, entries: Sequence[_Entry[T, R]], done: Future[Sequence[tuple[R | None, BaseException | None]]]
    ) -> None:
        error = done.exception()
        if error is not None:
            self._fail(entries, error)
        else:
            self._end(entries, done.result())

    def _fail(self, entries: Sequence[_Entry[T, R]], error: BaseException) -> None:
        self._end(entries, [(None, for_another_thread(error)) for _ in entries])

    def _end(
        self, entries: Sequence[_Entry[T, R]], outcomes: Sequence[tuple[R | None, BaseException | None]]
    ) -> None:
        for entry, outcome in zip(entries[:_TURN], outcomes, strict=False):
            entry.end(*outcome)
        # After the coroutines that these wake, so that their next requests go together.
        loop = asyncio.get_running_loop()
        if len(entries) > _TURN:
            loop.call_soon(self._end, entries[_TURN:], outcomes[_TURN:])
        else:
            loop.call_soon(self._begin)
