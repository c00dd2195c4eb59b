"""Entries that are written once: messages with unique keys in a queue of shardq's own.

An entry is delayed by the time for which it is to be kept. When it is due, it has expired: it counts for nothing, and a
worker removes it.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

import msgspec

from shardq.base.outgoing_message import OutgoingMessage
from shardq.batch import Batch
from shardq.client import Client
from shardq.errors import BodyNotFound, QueueNotFound
from shardq.message import StoredMessage
from shardq.queue import Queue
from shardq.queue_internals import found_in, holders_of, stored_in, waiting_on
from shardq.storage.per_process import OwnLock
from shardq.storage.requests import EntryState
from shardq.tasks.errors import Failure

__all__ = ["Decided", "Entry", "EntryQueue"]

MAX_RESULT_BYTES = 100_000_000
MAX_ENTRY_BYTES = 1_000_000  # of a value that is stored in its entry, and not beside the queue
Kind = Literal["done", "failed", "cancelled"]


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of a task."""

    state: Kind
    value: bytes = b""  # of a task that is done
    failure: Failure | None = None
    seconds: float | None = None  # for which its last attempt ran
    apart: bool = False  # of a bucket: its values are those of its steps, and not repeated here
    partial: bool = False  # of a bucket in which failures were collected: a retry tries them again
    origin: int | None = None  # of a step that was given up: the number of the one before it that failed
    large: str = ""  # of a task whose value is stored beside the queue: the id under which it is


class Decided(msgspec.Struct, frozen=True):
    """An entry that is to be written, unless another one stands, and for how many seconds it is kept."""

    task: str
    entry: Entry
    keep: float


_FEW, _MANY = 10, 1_000  # entries that are removed together
_BYTES = 10_000_000  # that they have together, nearly: their values come with them
_PAGE = 50  # entries that are looked through together


class EntryQueue:
    """A queue of entries. It is created when the first one is written. Any thread may use it."""

    def __init__(self, client: Client, name: str) -> None:
        self._client, self._name = client, name
        self._lock = OwnLock()
        self._queue: Queue | None = None
        self._own = threading.local()  # how each thread waits

    def write(self, messages: Sequence[OutgoingMessage]) -> None:
        """Store entries, unless their keys are taken."""
        try:
            self._opened(create=True).producer().send_many(messages)
        except QueueNotFound:  # it was deleted
            self._queue = None
            self._opened(create=True).producer().send_many(messages)

    def write_large(self, key: str, value: bytes, keep: float) -> None:
        """Store a value of any size beside the queue, under a key, unless that is taken."""
        try:
            self._send_large(key, value, keep)
        except QueueNotFound:  # it was deleted
            self._queue = None
            self._send_large(key, value, keep)

    def read_large(self, key: str) -> bytes | None:
        """Read :meth:`write_large`; None when it is over."""
        if (found := self.find([key]).get(key)) is None:
            return None
        with suppress(BodyNotFound), self._opened().open(found.id) as file:
            return file.read()
        return None

    def find(self, keys: Sequence[str]) -> Mapping[str, StoredMessage]:
        """The entries that stand and are not over, by their keys."""
        holders = {key: each for key, each in zip(keys, self.holders(keys), strict=True) if each is not None}
        if not holders:
            return {}
        queue = self._opened()
        stored = found_in(queue, [each for each in holders.values() if each])
        found = {key: stored.get(each) or queue.get(unique_key=key) for key, each in holders.items()}
        return {
            key: each for key, each in found.items() if each is not None and each.state is EntryState.DELAYED
        }

    def holders(self, keys: Sequence[str]) -> Sequence[str | None]:
        """Whose the keys are, in one request: see :func:`shardq.queue.holders_of`."""
        try:
            return holders_of(self._opened(), keys)
        except QueueNotFound:
            self._queue = None
            return [None] * len(keys)

    def all(self) -> Iterator[StoredMessage]:
        """Every entry that is not over, in no particular order. One that is being written may come twice."""
        try:
            for message in stored_in(self._opened(), _PAGE):
                if message.state is EntryState.DELAYED:
                    yield message
        except QueueNotFound:
            self._queue = None

    def remove(self, key: str) -> None:
        """Remove an entry before its time is over."""
        try:
            self._opened().remove(unique_key=key)
        except QueueNotFound:
            self._queue = None

    def wait(self, seconds: float) -> bool:
        """Sleep until something may have been written, for so many seconds at most; False: nothing ever was."""
        try:
            queue = self._opened()
            if not hasattr(self._own, "wait"):
                self._own.wait = waiting_on(queue)
            self._own.wait(seconds)
        except QueueNotFound:
            return False
        return True

    def remove_old(self, stopped: Callable[[], bool]) -> int:
        """Remove the entries that are over, until that is stopped; returns how many they were."""
        removed, count = 0, _FEW
        try:
            with self._opened().consumer(visibility_timeout=60) as consumer:
                while not stopped() and (batch := consumer.receive(count)):
                    batch.ack()
                    removed += len(batch)
                    count = _as_many(batch, count)
        except QueueNotFound:
            self._queue = None
        return removed

    def _send_large(self, key: str, value: bytes, keep: float) -> None:
        producer = self._opened(create=True).producer()
        producer.send_stream(io.BytesIO(value), unique_key=key, delay=keep, on_conflict="keep")

    def _opened(self, *, create: bool = False) -> Queue:
        if (known := self._queue) is not None:  # another thread may find out that it was deleted
            return known
        with self._lock.plain:
            found = self._queue = self._created() if create else self._client.queue(self._name)
        return found

    def _created(self) -> Queue:
        settings: dict[str, Any] = {"shards": 4, "max_deliveries": None, "time_shard_seconds": 60.0}
        return self._client.create_queue(self._name, exist_ok=True, **settings)


def _as_many(batch: Batch, count: int) -> int:
    """How many entries are received together after these: more, up to so many as are small enough together."""
    size = sum(len(each.raw) for each in batch if each.large is None)
    return max(_FEW, min(_MANY, 10 * count, _BYTES * len(batch) // max(size, 1)))
