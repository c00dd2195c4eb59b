"""A connection to a store for the tasks of one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from inspect import iscoroutinefunction
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

import shardq.client
from shardq.aio.consumer import Consumer
from shardq.aio.patterns import QueuePattern
from shardq.aio.queue import Queue
from shardq.aio.semaphore import Semaphore
from shardq.aio.threads import MOST_THREADS, Threads, Wraps, awaited, carried_out, in_loop
from shardq.base.clock import Clock
from shardq.base.codec import BYTES, Codec
from shardq.core.context.counters import Counters
from shardq.core.context.retry import RETRY_SECONDS
from shardq.core.hooks import Hooks, Observer
from shardq.core.settings import QueueSettingsArguments, check_number
from shardq.storage.abilities import OnLoop

if TYPE_CHECKING:
    from shardq.aio.topics import Schedules, Topic

__all__ = ["Client", "connect"]


def connect(
    url: str,
    *,
    hooks: Hooks | None = None,
    observer: Observer | None = None,
    retry_seconds: float = RETRY_SECONDS,
    clock: Clock | None = None,
    threads: int = MOST_THREADS,
) -> Client:
    """Open the store that a URL names, for the event loop that uses the client first.

    Nothing is connected, and no thread is started, before it is needed; the path of an SQLite file is resolved at once.
    Blocking calls are made in up to ``threads`` threads, 1 to 64. Hooks are called in them, and around sends and
    handlers in the loop. The other options are those of :func:`shardq.connect`. Raises InvalidSetting.
    """
    check_number("threads", threads, 1, MOST_THREADS, whole=True)
    sync = shardq.client.connect(
        url, hooks=hooks, observer=observer, retry_seconds=retry_seconds, clock=clock
    )
    return Client(sync, threads=threads)


class Client(Wraps[shardq.client.Client]):
    """A connection to one store, for the tasks of one event loop, as :class:`shardq.Client`.

    Used in another loop, in a forked child or after :meth:`close` it raises Closed. A call that is cancelled before it
    was begun does nothing. One that was begun is carried out, and CancelledError is raised when it has ended. Its
    cause is the error of the call if it had one. A second cancellation does not wait.

    >>> import asyncio
    >>> async def main():
    ...     async with shardq.aio.connect(url) as client:
    ...         queue = await client.create_queue("letters")
    ...         async with queue.producer() as producer:
    ...             await producer.send(b"dear")
    ...         async with queue.consumer() as consumer:
    ...             async for message in consumer.messages(wait=0):
    ...                 print(message.body)
    ...                 await message.ack()
    >>> asyncio.run(main())
    b'dear'
    """

    def __init__(self, sync: shardq.client.Client, *, threads: int | Threads = MOST_THREADS) -> None:
        super().__init__(sync, threads if isinstance(threads, Threads) else Threads(threads))

    async def create_queue(
        self, name: str, *, exist_ok: bool = False, **settings: Unpack[QueueSettingsArguments]
    ) -> Queue:
        """Create a queue, as :meth:`shardq.Client.create_queue` does, with the same settings and errors."""
        sync = await self._threads.run(lambda: self._sync.create_queue(name, exist_ok=exist_ok, **settings))
        return Queue(sync, self._threads)

    async def queue(self, name: str) -> Queue:
        """Return an existing queue. Raises InvalidName or QueueNotFound."""
        return Queue(await self._threads.run(self._sync.queue, name), self._threads)

    def pattern(self, pattern: str) -> QueuePattern:
        """Return the queues whose names match a pattern, as :meth:`shardq.Client.pattern` does. Raises InvalidName."""
        return QueuePattern(self._sync.pattern(pattern), self._threads)

    async def consumer(
        self,
        queues: Sequence[str],
        *,
        weights: Mapping[str, float] | None = None,
        order: Literal["fair", "strict"] = "fair",
        codec: Codec = BYTES,
        name: str | None = None,
        visibility_timeout: float | None = None,
        keep_leases: bool = False,
    ) -> Consumer:
        """Return a consumer that receives from several queues. Options and errors are those of the sync client."""
        sync = await self._threads.run(
            self._sync.consumer,
            queues,
            weights=weights,
            order=order,
            codec=codec,
            name=name,
            visibility_timeout=visibility_timeout,
            keep_leases=keep_leases,
        )
        return Consumer(sync, self._threads)

    queues = awaited(shardq.client.Client.queues)
    exists = awaited(shardq.client.Client.exists)
    delete_queue = awaited(shardq.client.Client.delete_queue)
    delete_expired_queues = awaited(shardq.client.Client.delete_expired_queues)
    create_schema = awaited(shardq.client.Client.create_schema)
    now = awaited(shardq.client.Client.now)
    ping = awaited(shardq.client.Client.ping)
    diagnose = awaited(shardq.client.Client.diagnose)
    topics = awaited(shardq.client.Client.topics)
    delete_topic = awaited(shardq.client.Client.delete_topic)

    async def semaphore(
        self, name: str, *, permits: int | None = None, lease: float | None = None
    ) -> Semaphore:
        """Return a semaphore, as :meth:`shardq.Client.semaphore` does, which it creates if ``permits`` are given."""
        sync = await self._threads.run(self._sync.semaphore, name, permits=permits, lease=lease)
        return Semaphore(sync, self._threads)

    async def create_topic(
        self, name: str, *, retention: float | None = None, exist_ok: bool = False, codec: Codec = BYTES
    ) -> Topic:
        """Create a topic, as :meth:`shardq.Client.create_topic` does, with the same options and errors."""
        from shardq.aio.topics import Topic  # noqa: PLC0415 - an application may need none of it

        sync = await self._threads.run(
            self._sync.create_topic, name, retention=retention, exist_ok=exist_ok, codec=codec
        )
        return Topic(sync, self._threads)

    async def topic(self, name: str, *, codec: Codec = BYTES) -> Topic:
        """Return an existing topic. Raises InvalidName or TopicNotFound."""
        from shardq.aio.topics import Topic  # noqa: PLC0415 - as above

        return Topic(await self._threads.run(self._sync.topic, name, codec=codec), self._threads)

    @asynccontextmanager
    async def transaction(self, *, connection: object) -> AsyncIterator[Client]:
        """Return a client whose sends and acks are part of a transaction of the application, for an ``async with``.

        ``connection`` is a psycopg ``AsyncConnection``; an ``AsyncConnection`` or ``AsyncSession`` of SQLAlchemy on
        that driver; or PyMongo's ``AsyncClientSession``. Statements run on this event loop, one at a time, also when
        several tasks send. After the block, and after the end of the transaction, the client raises Closed. The end of
        the block waits for the answer to a call that was begun, however often it is cancelled, so that nothing follows
        a rollback. All else is as in :meth:`shardq.Client.transaction`.
        """
        driver = await _driver_connection(connection)
        loop = self._threads.loop()
        threads = Threads(1, joins=True, busy=getattr(driver, "lock", None))  # psycopg's
        on_loop = OnLoop(driver, partial(in_loop, loop), threads.wake)
        try:
            sync = await threads.run(self._sync.transaction, connection=on_loop)
            yield Client(sync, threads=threads)
        finally:
            on_loop.left = True
            await _uncancelled(threads.close(lambda: None))

    @property
    def schedules(self) -> Schedules:
        """The schedules of all queues."""
        from shardq.aio.topics import Schedules  # noqa: PLC0415 - as above

        return Schedules(self._sync.schedules, self._threads)

    @property
    def counters(self) -> Counters:
        """The counters of this client, since it was opened."""
        return self._sync.counters

    async def close(self) -> None:
        """Close the connections, and with them the client's queues, producers and consumers. May be repeated.

        Receives that wait raise Closed. Messages that are still held are redelivered when their leases expire.
        """
        await carried_out(self._threads.close(self._sync.close))

    async def __aenter__(self) -> Self:
        self._threads.loop()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def _uncancelled(ends: Coroutine[Any, Any, None]) -> None:
    """Await the end of something, however often this is cancelled."""
    task, cancelled = asyncio.ensure_future(ends), None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    task.result()


async def _driver_connection(connection: Any) -> object:
    """Return the driver's connection below one of SQLAlchemy's, which are awaited for."""
    if iscoroutinefunction(getattr(type(connection), "connection", None)):  # an AsyncSession
        connection = await connection.connection()
    if iscoroutinefunction(getattr(type(connection), "get_raw_connection", None)):  # an AsyncConnection
        connection = (await connection.get_raw_connection()).driver_connection
    return connection
