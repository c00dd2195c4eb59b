"""Receiving what is broadcast."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator
from contextlib import suppress

from shardq.base.closing import Closing
from shardq.batch import Batch
from shardq.broadcast.subscribers import Entry
from shardq.client import Client
from shardq.codec import Codec
from shardq.consumer import Consumer
from shardq.errors import Closed, QueueNotFound, ShardqError
from shardq.settings import check_number
from shardq.storage.per_process import forks

__all__ = ["Subscription"]

_log = logging.getLogger(__name__)

_SLICE_SECONDS = 5.0  # a subscription that was lost is noticed within this time, and made again


class Subscription(Closing):
    """Receives what is published from now on. Made by :meth:`shardq.broadcast.Broadcast.subscribe`.

    Used by one thread at a time, as a :class:`~shardq.Consumer` is. Messages are acked, released and redelivered as
    those of any queue. If the process stood still for half a minute, what was published meanwhile is missed: a warning
    is logged, and the subscription goes on.
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
                "subscription to %s stood still for longer than its lease: what was published meanwhile is missed",
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
                entry.queue,
                exist_ok=True,
                shards=1,
                time_shards=1,
                max_deliveries=None,
                retention=self._keep,
                expires=self._keep,
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
