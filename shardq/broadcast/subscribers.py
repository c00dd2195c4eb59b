"""Who is subscribed to a broadcast: entries in a queue of their own, each held by a subscriber for as long as it lives.

An entry is a message that its subscriber has received and never acks. A thread extends its lease. When the subscriber
dies the lease ends, and the entry goes to the next subscriber, as another delivery of the message. The queue of a
subscriber is named after the entry and its delivery, so nobody gets what was sent to the one before.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Iterator
from contextlib import suppress

from shardq.base.waits import Flag
from shardq.batch import Batch
from shardq.client import Client
from shardq.consumer import Consumer
from shardq.errors import Closed, LeaseLost, QueueNotFound, ShardqError
from shardq.message import Message, StoredMessage
from shardq.queue_internals import use
from shardq.storage.requests import EntryState

__all__ = ["LEASE_SECONDS", "Entry", "keep_alive", "live_queues"]

_log = logging.getLogger(__name__)

LEASE_SECONDS = 30.0
_MANY = 100_000


class Entry:
    """One subscriber's place among the subscribers, held until it is left, or until this process dies."""

    def __init__(self, client: Client, broadcast: str) -> None:
        self._client = client
        registry = client.create_queue(
            _registry(broadcast),
            exist_ok=True,
            shards=1,
            time_shards=1,
            max_deliveries=None,
            visibility_timeout=LEASE_SECONDS,
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
        """True, once, when publishers had left the subscriber out for a while, and do so no more."""
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
            with suppress(ShardqError):  # else the lease ends by itself
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
    """The queues of those who are subscribed now. One that is about to subscribe may have none yet."""
    try:
        entries = client.queue(_registry(broadcast)).peek(_MANY)
    except QueueNotFound:  # nobody ever subscribed
        return
    now = client.now()
    for entry in entries:
        if entry.state is EntryState.IN_FLIGHT and entry.due > now:
            yield _queue_of(broadcast, entry)


def _registry(broadcast: str) -> str:
    return f"{broadcast}.subscribers"


def _queue_of(broadcast: str, entry: Message | StoredMessage) -> str:
    _, _, _, bundle, position = entry.id.rsplit(":", 4)
    return f"{broadcast}.live/{bundle}-{position}-{entry.deliveries}"
