"""How full a queue with bounds is, as one client knows it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

import msgspec

from shardq.core.context.retry import Retry
from shardq.storage.per_process import OwnLock, PerProcess
from shardq.storage.requests import ShardCounts
from shardq.storage.store import Store

__all__ = ["LONGEST", "SHARE_OF_TIME", "PendingSize", "QueueUsage"]

LONGEST = 1.0
"""Seconds after which a send counts pending messages again at the latest; longer if counting takes long."""

SHARE_OF_TIME = 20
"""Counting takes at most this part of the time."""


class PendingSize(msgspec.Struct, frozen=True):
    """Messages that wait to be received, with their bytes; and those among them that are delayed."""

    messages: int = 0
    bytes: int = 0
    delayed: int = 0

    def __add__(self, other: PendingSize) -> PendingSize:
        return PendingSize(
            self.messages + other.messages, self.bytes + other.bytes, self.delayed + other.delayed
        )

    @classmethod
    def of(cls, counts: ShardCounts) -> PendingSize:
        """Return the pending messages of a shard."""
        return cls(counts.ready + counts.delayed, counts.bytes or 0, counts.delayed)


class QueueUsage:
    """The pending messages of a queue: the last count, and those that this client has sent since, or is about to store.

    For callers that hold its lock.
    """

    def __init__(
        self, store: Store, retry: Retry, queue: str, timer: Callable[[], float] = time.monotonic
    ) -> None:
        self._store, self._retry, self._queue, self.timer = store, retry, queue, timer
        self.counted = self._sent = PendingSize()
        self.forget()
        self.is_put_off_known = False  # since that count
        self._under_way = PerProcess(list[PendingSize])
        self.lock = OwnLock()
        """Held by the thread that counts, or that lets messages in by the count."""
        self.owner = PerProcess(lambda: secrets.token_hex(8))
        """A name for this client in this process."""

    @property
    def known(self) -> PendingSize:
        """The pending messages, unless other clients have sent or received some meanwhile."""
        return sum(self._under_way.get(), self.counted + self._sent)

    def begin(self, more: PendingSize) -> None:
        """Note that this client is about to store so much. A count meanwhile may see it or not."""
        self._under_way.get().append(more)

    def end(self, more: PendingSize) -> None:
        """Note that what was begun may be stored."""
        self._under_way.get().remove(more)
        self._sent += more

    def put_off(self, messages: int) -> None:
        """Note how many of those that were counted as delayed are so for longer than a moment."""
        self.counted = msgspec.structs.replace(self.counted, delayed=messages)
        self.is_put_off_known = True

    def dropped(self, messages: int) -> None:
        """Note that this client has dropped this number of the counted messages."""
        share = self.counted.bytes * messages // max(self.counted.messages, 1)
        self.counted += PendingSize(-messages, -share)

    def forget(self) -> None:
        """Take the last count for old: the next call counts again."""
        self._began = self._took = float("-inf")

    def count(self, *, sizes: bool, again: bool = False) -> bool:
        """Count the pending messages if the last count is old; with ``again`` as soon as its cost allows.

        False if it did not.
        """
        least = SHARE_OF_TIME * max(self._took, 0.0)
        now = self.timer()
        if now - self._began < (least if again else max(LONGEST, least)):
            return False
        counted = PendingSize()
        for shard in self._retry(self._store.shards, self._queue):
            counted += PendingSize.of(self._retry(self._store.count, shard, sizes=sizes))
        self.is_put_off_known = False
        self.counted, self._sent, self._began, self._took = counted, PendingSize(), now, self.timer() - now
        return True
