"""A connection to a store, and its queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Literal, Unpack, cast

import shardq.base  # so that annotations can name packages that are loaded when they are used
from shardq.base.clock import to_datetime
from shardq.base.closing import Closing
from shardq.base.codec import BYTES, Codec
from shardq.base.patterns import is_pattern
from shardq.base.shard import listed
from shardq.base.texts import kind_of, shown
from shardq.client.background_jobs import attend, dismiss
from shardq.client.consumer import Consumer
from shardq.client.patterns import QueuePattern
from shardq.client.queue import Queue
from shardq.client.queue_internals import consumer_of
from shardq.client.semaphore import (
    PERMIT_LEASE_SECONDS,
    Semaphore,
    check_semaphore,
    create_semaphore,
    open_semaphore,
    warn_of_other_permits,
)
from shardq.core.context.counters import Counters
from shardq.core.context.queue_context import QueueContexts
from shardq.core.context.retry import RETRY_SECONDS
from shardq.core.hooks import Hooks, Observer, check_hooks, check_observer
from shardq.core.limits.permits import PERMITS_FOLDER, permits_queue
from shardq.core.logs.event_log import write_entries
from shardq.core.pinging import ping
from shardq.core.queue_lifecycle import create_queue, delete_queue, delete_unused
from shardq.core.receiving.removing import drop_oldest
from shardq.core.receiving.several_queues import check_queues
from shardq.core.settings import QueueSettingsArguments, check_number
from shardq.errors import InvalidSetting, UnsupportedByStore
from shardq.storage.abilities import TransactionalStore
from shardq.storage.requests import Finding
from shardq.storage.store import Store
from shardq.storage.writing import reporting_done

if TYPE_CHECKING:
    import shardq.schedules
    import shardq.topics

__all__ = ["Client", "check_client"]


class Client(Closing):
    """A connection to one store. Safe for threads and in forked children, as are its queues and producers.

    >>> with shardq.connect(url) as client:
    ...     orders = client.create_queue("orders", shards=4, visibility_timeout=60)
    ...     client.queues()
    ('orders', 'orders.dead')
    """

    def __init__(
        self,
        store: Store,
        *,
        hooks: Hooks | None = None,
        observer: Observer | None = None,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        check_hooks(hooks)
        check_observer(observer)
        self._contexts = QueueContexts(
            store,
            drop_oldest,
            write_entries,
            hooks=hooks,
            observer=observer,
            retry_seconds=retry_seconds,
            attend=attend,
            dismiss=dismiss,
        )
        self._store, self._retry = store, self._contexts.retry
        self._semaphores: dict[str, Semaphore] = {}  # all, as each keeps the leases of its permits
        self._permits_given: dict[str, tuple[int, float | None]] = {}
        self._hooks, self._observer = hooks, observer

    def create_queue(
        self, name: str, *, exist_ok: bool = False, **settings: Unpack[QueueSettingsArguments]
    ) -> Queue:
        """Create a queue, with its dead-letter queue, and the store's schema if it is missing.

        The settings are those of :class:`~shardq.QueueSettings`. With ``exist_ok`` an existing queue is returned with
        its own settings, and that call counts as a use of a queue that expires. A warning is logged for each given
        setting that differs. Raises InvalidName, InvalidSetting or QueueExists, with nothing created, and
        OutcomeUnknown when the store fails after the queue itself was created: call it again with ``exist_ok``.
        """
        return Queue(create_queue(self._contexts, name, settings, exist_ok=exist_ok))

    def queue(self, name: str) -> Queue:
        """Open an existing queue. Raises InvalidName or QueueNotFound."""
        return Queue(self._contexts.of(name))

    def pattern(self, pattern: str) -> QueuePattern:
        """Return the queues whose names match a pattern such as ``mail/*``, now and later. Raises InvalidName."""
        return QueuePattern(self._contexts, pattern)

    def consumer(
        self,
        queues: Sequence[str],
        *,
        weights: Mapping[str, float] | None = None,
        order: Literal["fair", "strict"] = "fair",
        codec: Codec = BYTES,
        name: str | None = None,
        visibility_timeout: float | None = None,
        keep_leases: bool = False,
        prefetch: int = 0,
    ) -> Consumer:
        """Return a consumer that receives from several queues, by names and patterns. It waits for all of them at once.

        A pattern such as ``mail/*`` stands for all queues that match, see :class:`shardq.QueuePattern`. New and deleted
        ones are noticed within five seconds. A weight that is given for a pattern is that of each of its queues.

        Each batch is of one queue: :attr:`shardq.Batch.queue`. With ``order="fair"`` the queues that have messages
        share the receiving by their ``weights``, counted in messages; without one a queue has 1. With
        ``order="strict"`` a queue is received from only while those before it in the list have nothing. While there is
        work, messages in another queue are noticed within half a second. The settings of each queue hold for its
        messages. Up to ``prefetch`` messages of each are claimed ahead. The other options are those of
        :meth:`shardq.Queue.consumer`.

        A queue that is paused, deleted or cannot be read is left out, and the others continue. A receive that finds
        nothing raises then, unless the queue is only paused. Raises InvalidName, InvalidSetting or QueueNotFound.

        >>> client = shardq.connect(url)
        >>> for queue in ("urgent", "usual"):
        ...     id = client.create_queue(queue).producer().send(b"to do")
        >>> with client.consumer(["urgent", "usual"], weights={"urgent": 3}) as consumer:
        ...     for batch in consumer.batches(100, wait=0):
        ...         print(batch.queue, batch.bodies)
        ...         batch.ack()
        urgent [b'to do']
        usual [b'to do']
        """
        return consumer_of(
            [self.pattern(each) if is_pattern(each) else self.queue(each) for each in check_queues(queues)],
            weights=weights,
            order=order,
            codec=codec,
            name=name,
            visibility_timeout=visibility_timeout,
            keep_leases=keep_leases,
            prefetch=prefetch,
        )

    def queues(self, prefix: str = "") -> tuple[str, ...]:
        """Return the names of all queues that start with the prefix, sorted.

        Names of queues that shardq makes for itself begin with ``_shardq/``. They are shown for a prefix that does too.
        """
        return listed(self._contexts.names(prefix), prefix)

    def exists(self, name: str) -> bool:
        """Return whether a queue of that name exists. Raises InvalidName."""
        return self._contexts.exists(name)

    def delete_queue(self, name: str) -> None:
        """Remove a queue with all its messages, its history, its schedules, and the permits of its limits.

        Its dead-letter queue is another queue, and stays.

        Raises QueueNotFound; then, too, it removes the rest of such a queue that a failed call has left. Raises
        OutcomeUnknown when the store fails after the queue was deleted.
        """
        delete_queue(self._contexts, name)
        self._semaphores.pop(name.removeprefix(PERMITS_FOLDER), None)

    def delete_expired_queues(self, prefix: str = "") -> tuple[str, ...]:
        """Delete the queues with ``expires`` that were empty and unused for so long; returns their names, sorted.

        A queue's time begins with the first call that finds it unused. Consumers of queues that expire do the same once
        a minute, for the queues whose names are alike up to the last ``/``.
        """
        return delete_unused(self._contexts.of, self._contexts.names(prefix), self._contexts.forget)

    def semaphore(self, name: str, *, permits: int | None = None, lease: float | None = None) -> Semaphore:
        """Return a semaphore, which has a limited number of holders at a time in all processes that use the store.

        With ``permits`` (1 to 1,024) a missing semaphore is created. An existing one is returned unchanged, with a
        warning if its number of permits differs; :meth:`shardq.Semaphore.alter` changes it. The permit of a holder
        that dies comes back after ``lease`` seconds, 0.05 to 600; a new semaphore has 30 without it. Its permits are
        in the queue ``_shardq/permits/<name>``; to delete that queue deletes the semaphore.

        Raises InvalidName or InvalidSetting; without ``permits`` QueueNotFound when there is no such semaphore.
        """
        queue, created = permits_queue(name), False
        if permits is not None:
            chosen = PERMIT_LEASE_SECONDS if lease is None else lease
            check_semaphore(permits, chosen)
            if name not in self._semaphores or not self.exists(queue):
                created = create_semaphore(self._store, self._retry, name, permits=permits, lease=chosen)
                self._semaphores.pop(name, None)  # of one that was deleted
        with reporting_done(lambda: f"semaphore {name!r} is created: repeat the call" if created else ""):
            found = self._semaphores.get(name)
            if found is None:
                found = self._semaphores.setdefault(name, open_semaphore(self._contexts.of, name))
                self._permits_given.pop(name, None)
            if permits is not None and self._permits_given.get(name) != (permits, lease):
                self._permits_given[name] = permits, lease  # a call that is repeated warns once
                if not created:
                    warn_of_other_permits(found, permits, lease)
            return found

    def create_topic(
        self, name: str, *, retention: float | None = None, exist_ok: bool = False, codec: Codec = BYTES
    ) -> shardq.topics.Topic:
        """Create a topic: each published message goes to each of its subscriptions.

        Messages that were relayed are kept for ``retention`` seconds, a day without it, for subscriptions that start
        earlier or are rewound. With ``exist_ok`` one that exists is returned as it is, with a warning if another
        retention is given.
        Raises InvalidName, InvalidSetting or TopicExists.
        """
        from shardq.topics.topics import create_topic  # noqa: PLC0415 - an application may need none of it

        return create_topic(self._contexts, name, retention=retention, exist_ok=exist_ok, codec=codec)

    def topic(self, name: str, *, codec: Codec = BYTES) -> shardq.topics.Topic:
        """Open an existing topic, to which values are published with a codec. Raises InvalidName or TopicNotFound."""
        from shardq.topics.topic import Topic  # noqa: PLC0415 - an application may need none of it

        return Topic(self._contexts, name, codec=codec)

    def topics(self) -> tuple[str, ...]:
        """Return the names of all topics, sorted."""
        from shardq.topics.topics import topics  # noqa: PLC0415 - an application may need none of it

        return topics(self._contexts)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all its subscriptions and their messages. Raises InvalidName or TopicNotFound."""
        from shardq.topics.topics import delete_topic  # noqa: PLC0415 - an application may need none of it

        delete_topic(self._contexts, name)

    @property
    def schedules(self) -> shardq.schedules.Schedules:
        """The schedules of all queues: messages that are sent automatically, at moments or again and again."""
        from shardq.schedules import Schedules  # noqa: PLC0415 - as above

        return Schedules(self._contexts)

    def transaction(self, *, connection: object) -> Client:
        """Return a client whose requests are part of the application's own transaction, on its connection.

        On SQLite ``connection`` is the :class:`sqlite3.Connection` to the file of the queues, and on PostgreSQL the
        :class:`psycopg.Connection`. A Session or connection of SQLAlchemy or Django leads to the driver's own. On a
        MongoDB replica set it is the pymongo ``ClientSession`` on which the transaction was started. A driver that
        begins transactions itself has one begun. Messages are sent, acked or moved when the application commits, and
        never when it rolls back. Messages that another client has received are acked and released by their receipts.
        The block does not end the transaction. It is used by one thread. After the transaction it raises Closed, unless
        another one was begun on the connection of SQLite or PostgreSQL: then it continues in that. An ack raises
        LeaseLost also for a message that is not stored any more, because another consumer may have done the work
        and acked it.

        Nothing is repeated: after an error roll back, and do all of it again. Hooks are called within the transaction.
        Its operations are not recorded as events. Raises UnsupportedByStore on other stores, InvalidSetting when the
        connection has no transaction or is to another storage, and SchemaMismatch. On MongoDB it raises
        UnsupportedByStore for large bodies and receiving too. Errors after which the transaction must be repeated carry
        the driver's labels, so that ``with_transaction()`` repeats it. On PostgreSQL receiving is refused.

        >>> import sqlite3
        >>> client = shardq.connect(url)
        >>> orders = client.create_queue("orders")
        >>> db = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        >>> _ = db.execute("BEGIN IMMEDIATE")
        >>> with client.transaction(connection=db) as within:
        ...     id = within.queue("orders").producer().send(b"pay")
        >>> _ = db.execute("ROLLBACK")
        >>> orders.counts().ready
        0
        """
        self._retry.check_open()
        if self._contexts.outside is not None:
            raise UnsupportedByStore(
                f"connection={shown(connection)}: this client is within a transaction itself: use it for all that is "
                "part of that, and for another transaction the client that made it"
            )
        if not self._store.capabilities.transactions:
            self._retry(self._store.ping)  # which tells a replica set
        if not self._store.capabilities.transactions:
            raise UnsupportedByStore(
                f"connection={shown(connection)}: this store takes no part in transactions of the application: send "
                "with a dedupe_key after the commit, and again after a crash; or keep the queues on SQLite, "
                "PostgreSQL, or a MongoDB replica set (of one member at least), beside the application's own data "
                "(in tests an SQLite file in place of memory://)"
            )
        store = cast("TransactionalStore", self._store).within(connection)
        within = Client(store, hooks=self._hooks, observer=self._observer, retry_seconds=0.0)
        within._contexts.outside = self._contexts
        within._contexts.events.close()  # a thread writes them, which has no part in the transaction
        return within

    def create_schema(self) -> None:
        """Bring the store's schema to this version of shardq. :meth:`create_queue` calls it automatically."""
        self._retry(self._store.create_schema)

    def now(self) -> datetime:
        """Read the time of the store's clock, by which messages become due and leases expire."""
        return to_datetime(self._retry(self._store.now))

    def ping(self, *, timeout: float = 5.0) -> None:
        """Return when the store has answered. Nothing is changed, nothing is repeated, and no schema is needed.

        Raises StoreUnavailable, with the remedy, when the store has not answered within ``timeout`` seconds. An SQLite
        store answers when its file can be read, or can be made in its folder. Within a :meth:`transaction` it is asked
        outside of that. Raises Closed after :meth:`close`.
        """
        check_number("timeout", timeout, 0.001, 3_600.0)
        self._retry.check_open()
        ping((self._contexts.outside or self._contexts).store, timeout)

    def diagnose(self) -> tuple[Finding, ...]:
        """Return facts about the health of the store, with a remedy for each that is not in order."""
        self._retry.check_open()
        return (self._contexts.outside or self._contexts).store.diagnose()

    @property
    def counters(self) -> Counters:
        """The counters of this client, since it was opened."""
        return self._contexts.counters.total()

    def close(self) -> None:
        """Close the connections, and with them the client's queues, producers and consumers. May be repeated.

        Messages that were sent are stored. Messages that are still held are redelivered when their leases expire.
        Every later call on any of them raises Closed. A thread that relays a topic completes its round first, for 3
        seconds at most.
        """
        self._contexts.close()


def check_client(client: object) -> None:
    """Raise InvalidSetting unless it is a client."""
    if not isinstance(client, Client):
        raise InvalidSetting(
            f"client={shown(client)} is {kind_of(client)}: give what shardq.connect() returns"
        )
