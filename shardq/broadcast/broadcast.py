"""Sending to all current listeners, receiving what was sent, and the list of subscribers.

An entry is a message that its subscriber has received and never acks. A thread extends its lease. When the subscriber
dies the lease ends, and the entry goes to the next subscriber, as another delivery of the message. The queue of a
subscriber is named after the entry and its delivery, so that it gets no messages of the one before.
"""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

from shardq.base.closing import Closing
from shardq.base.codec import BYTES, Codec, check_codec
from shardq.base.log import Log
from shardq.base.outgoing_message import HeaderValue
from shardq.base.shard import check_queue_name
from shardq.base.waits import Flag
from shardq.client import Client, check_client
from shardq.client.batch import Batch
from shardq.client.consumer import Consumer
from shardq.client.queue_internals import shorten_leases, use
from shardq.core.message import Message, StoredMessage
from shardq.core.sending.prepared import check_bodies
from shardq.core.settings import ONE_SHARD, check_number
from shardq.errors import Closed, InvalidName, LeaseLost, PartialSend, QueueNotFound, ShardqError
from shardq.storage.per_process import forks
from shardq.storage.requests import EntryState

__all__ = ["LEASE_SECONDS", "Broadcast", "Entry", "Subscription", "keep_alive", "live_queues"]

_log = Log(__name__)

LEASE_SECONDS = 30.0
_LEASE = timedelta(seconds=LEASE_SECONDS)
_MANY = 100_000
_SLICE_SECONDS = 5.0  # a subscription that was lost is noticed within this time, and made again


class Entry:
    """One subscriber's place among the subscribers, held until it is left, or until this process dies."""

    def __init__(self, client: Client, broadcast: str) -> None:
        self._client = client
        registry = client.create_queue(
            _registry(broadcast), exist_ok=True, visibility_timeout=LEASE_SECONDS, **ONE_SHARD
        )
        self._consumer: Consumer = registry.consumer()
        try:
            while not (batch := self._consumer.receive(1)):  # one that a subscriber has left who died
                registry.producer().send(b"")
        except BaseException:
            self._consumer.close()
            raise
        self._batch: Batch = batch
        self.queue = _queue_of(broadcast, batch[0])
        self._left, self._gap = Flag(), False
        keeping = (weakref.ref(self), self._left)
        threading.Thread(target=keep_alive, args=keeping, name="shardq-subscriber", daemon=True).start()

    @property
    def is_lost(self) -> bool:
        """True when this process stood still for longer than the lease: publishers leave the subscriber out."""
        return self._batch[0].lease_until <= self._client.now()

    def take_gap(self) -> bool:
        """Return True, once, when publishers had left the subscriber out for a while, and have ended that."""
        gap, self._gap = self._gap, False
        return gap

    def keep(self) -> None:
        """Extend the lease, and use the queue, which would expire while its subscriber works for long.

        The lease may have been over before, as this process stood still or the store was away.
        """
        until = self._batch[0].lease_until
        self._batch.extend(LEASE_SECONDS)
        self._gap |= self._client.now() > until
        with suppress(QueueNotFound):  # it is made after the entry
            use(self._client.queue(self.queue))

    def leave(self) -> None:
        """Be a subscriber no longer."""
        self._left.set()
        try:
            with suppress(ShardqError):  # else the lease ends automatically
                self._batch.ack()
        finally:
            self._consumer.close()


def keep_alive(reference: weakref.ref[Entry], left: Flag) -> None:
    """Extend the lease of an entry until it is left, lost, or no longer referred to: the thread of a subscriber."""
    while not left.wait(LEASE_SECONDS / 3):
        entry = reference()
        if entry is None:
            return
        try:
            entry.keep()
        except (Closed, LeaseLost, QueueNotFound):
            return
        except ShardqError as error:
            _log.warning("a subscription was not kept alive, trying again: %s", error)
        del entry


def live_queues(client: Client, broadcast: str) -> Iterator[str]:
    """Find the queues of the current subscribers. A subscriber that is about to subscribe may have none yet.

    A lease from a clock that was ahead is shortened: a dead subscriber is left out after it, and a live one extends it.
    """
    try:
        registry = client.queue(_registry(broadcast))
        entries = registry.peek(_MANY)
    except QueueNotFound:  # nobody ever subscribed
        return
    now = client.now()
    if any(entry.state is EntryState.IN_FLIGHT and entry.due > now + 2 * _LEASE for entry in entries):
        shorten_leases(registry, LEASE_SECONDS)
    for entry in entries:
        if entry.state is EntryState.IN_FLIGHT and entry.due > now:
            yield _queue_of(broadcast, entry)


def _registry(broadcast: str) -> str:
    return f"{broadcast}.subscribers"


def _queue_of(broadcast: str, entry: Message | StoredMessage) -> str:
    _, _, _, bundle, position = entry.id.rsplit(":", 4)
    return f"{broadcast}.live/{bundle}-{position}-{entry.deliveries}"


class Subscription(Closing):
    """Receives messages that are published from now on. Made by :meth:`shardq.broadcast.Broadcast.subscribe`.

    Used by one thread at a time, as a :class:`~shardq.Consumer` is. Messages are acked, released and redelivered as
    those of any queue. If the process stood still for half a minute, messages that were published meanwhile are
    missed: a warning is logged, and the subscription continues.
    """

    def __init__(self, client: Client, broadcast: str, *, codec: Codec, keep: float) -> None:
        self._client, self._broadcast, self._codec, self._keep = client, broadcast, codec, keep
        self._stopped = self._closed = False
        self._generation = forks.count
        self._entry, self._consumer = self._subscribe()

    @property
    def queue(self) -> str:
        """The name of the queue in which the messages of this subscription are."""
        return self._entry.queue

    def receive(self, limit: int = 1, *, wait: float = 0.0) -> Batch:
        """Receive up to ``limit`` messages; see :meth:`shardq.Consumer.receive`. Raises Closed."""
        check_number("wait", wait, 0.0, math.inf)
        deadline = time.monotonic() + wait
        while True:
            self._check_open()
            left = max(0.0, deadline - time.monotonic())
            batch = self._receive(limit, min(left, _SLICE_SECONDS))
            if batch or left <= _SLICE_SECONDS or self._stopped:
                return batch

    def batches(self, limit: int, *, wait: float | None = None) -> Iterator[Batch]:
        """Receive batch after batch, none of them empty.

        Ends when nothing came for ``wait`` seconds (None: never), or when :meth:`stop` is called.
        """
        while not self._stopped:
            batch = self.receive(limit, wait=_SLICE_SECONDS if wait is None else wait)
            if batch:
                yield batch
            elif wait is not None:
                return

    def stop(self) -> None:
        """End :meth:`batches` and waiting, within a second. For signal handlers and other threads."""
        self._stopped = True
        self._consumer.stop()

    def close(self) -> None:
        """Be subscribed no longer. Messages that were not received are dropped. May be repeated.

        In a forked child it does nothing: the subscription is the parent's.
        """
        if not self._closed and self._generation == forks.count:
            self._closed = self._stopped = True
            self._leave(self._entry, self._consumer)

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"this subscription to {self._broadcast!r} is closed: make another one")
        if self._generation != forks.count:
            raise Closed(
                f"this subscription to {self._broadcast!r} belongs to the parent process: subscribe again here"
            )

    def _receive(self, limit: int, wait: float) -> Batch:
        if self._entry.take_gap():
            _log.warning(
                "subscription to %s stood still for longer than its lease: messages that were published "
                "meanwhile are missed",
                self._broadcast,
            )
        try:
            if not self._entry.is_lost:
                return self._consumer.receive(limit, wait=wait)
        except QueueNotFound:  # it has expired
            pass
        lost = self._entry, self._consumer
        self._entry, self._consumer = self._subscribe()
        _log.warning(
            "subscription to %s was lost, and with it some messages: subscribed again", self._broadcast
        )
        self._leave(*lost)
        return self._consumer.receive(limit)

    def _subscribe(self) -> tuple[Entry, Consumer]:
        entry = Entry(self._client, self._broadcast)
        try:
            queue = self._client.create_queue(
                entry.queue, exist_ok=True, retention=self._keep, expires=self._keep, **ONE_SHARD
            )
            return entry, queue.consumer(codec=self._codec)
        except BaseException:
            entry.leave()
            raise

    def _leave(self, entry: Entry, consumer: Consumer) -> None:
        entry.leave()
        consumer.close()
        with suppress(ShardqError):  # else it expires
            self._client.delete_queue(entry.queue)


KEEP_SECONDS = 300.0
LONGEST_NAME = 120  # what the queues of subscribers add is at most 60


class Broadcast:
    """Sends each message to all current subscribers, each of which has its own copy.

    Clients that are not subscribed do not get it, now or later. A copy is delivered at least once while its subscriber
    lives. Safe for threads.

    >>> news = Broadcast(shardq.connect(url), "news")
    >>> with news.subscribe() as one, news.subscribe() as other:
    ...     news.publish(b"rain")
    ...     one.receive().bodies, other.receive().bodies
    2
    ([b'rain'], [b'rain'])
    >>> news.publish(b"sun")
    0
    """

    def __init__(self, client: Client, name: str, *, codec: Codec = BYTES) -> None:
        check_client(client)
        self.name, self._client, self._codec = _check_name(name), client, check_codec(codec)

    def publish(
        self, body: Any, *, headers: Mapping[str, HeaderValue] | None = None, ttl: float | None = None
    ) -> int:
        """Send to all subscribers; returns how many there are.

        Raises the errors of :meth:`shardq.Producer.send`; some subscribers may have the message then.
        """
        return self.publish_many([body], headers=headers, ttl=ttl)

    def publish_many(
        self,
        bodies: Iterable[Any],
        *,
        headers: Mapping[str, HeaderValue] | None = None,
        ttl: float | None = None,
    ) -> int:
        """Send several messages to all subscribers, in bundles; returns how many there are."""
        check_bodies(bodies, "publish one body with `publish`")
        subscribers, listed = 0, list(bodies)
        for name in live_queues(self._client, self.name):
            try:
                with self._client.queue(name).producer(codec=self._codec) as producer:
                    producer.send_many(listed, headers=headers, ttl=ttl)
            except QueueNotFound:  # not subscribed yet, or no longer
                continue
            except PartialSend:
                if self._client.exists(name):
                    raise
                continue
            subscribers += 1
        return subscribers

    def subscribe(self, *, keep: float = KEEP_SECONDS) -> Subscription:
        """Receive messages that are published from now on, until the subscription is closed or this process dies.

        A message that was not received within ``keep`` seconds, 30 at least, is dropped. After twice that nothing is
        left of a subscriber that died, if others of this broadcast live. Raises InvalidSetting.
        """
        check_number("keep", keep, 30.0, 86_400.0)
        return Subscription(self._client, self.name, codec=self._codec, keep=keep)


def _check_name(name: str) -> str:
    name = check_queue_name(name)
    if len(name) > LONGEST_NAME:
        raise InvalidName(
            f"broadcast {name[:20]!r}... has {len(name)} characters: use at most {LONGEST_NAME}"
        )
    return name
