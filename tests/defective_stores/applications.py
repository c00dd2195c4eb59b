"""Stores with one defect each that topics, schedules or large bodies show."""

from __future__ import annotations

import os
from collections.abc import Sequence

from msgspec.structs import replace

from shardq.base.shard import INTERNAL, Shard
from shardq.core.large.layout import BODIES, is_owner
from shardq.storage.requests import Append, DedupeEntry, QueueRecord
from shardq.storage.store import Store
from shardq.storage.wrapped_store import WrappedStore

__all__ = ["BROKEN_LARGE_BODIES", "BROKEN_SCHEDULES", "BROKEN_TOPICS"]

_TOPICS, _SCHEDULES = f"{INTERNAL}topics/", f"{INTERNAL}schedules/"
_MARKERS = 9  # the priority of what tells relays how far a round is


class PublishesLater(WrappedStore):
    """Keeps what was published last in memory, until something else is."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._last: Append | None = None

    def append(self, request: Append) -> None:
        if request.shard.queue.startswith(_TOPICS) and request.shard.queue.endswith("/log"):
            request, self._last = self._last or request, request
        super().append(request)


class CopiesForOneOnly(WrappedStore):
    """Stores the copies for one subscription, and only says so for the others."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._one = ""

    def append(self, request: Append) -> None:
        queue, bundles = request.shard.queue, request.bundles
        if queue.startswith(_TOPICS) and queue.count("/") == 4:
            self._one = self._one or queue
            if queue != self._one:
                bundles = tuple(each for each in bundles if each.priority == _MARKERS)
        if bundles:
            super().append(replace(request, bundles=bundles))


class StoresTwiceWhatHasAKey(WrappedStore):
    """Stores once more what a key was reserved for."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._reserved: set[str] = set()

    def reserve_keys(
        self, queue: str, entries: Sequence[DedupeEntry], window: int
    ) -> tuple[DedupeEntry, ...]:
        self._reserved.add(queue)
        return super().reserve_keys(queue, entries, window)

    def append(self, request: Append) -> None:
        super().append(request)
        if request.shard.queue in self._reserved:
            again = tuple(replace(each, id=os.urandom(16)) for each in request.bundles)
            super().append(replace(request, bundles=again))


class ForgetsTurns(WrappedStore):
    """Says that a schedule was turned, and leaves it as it was."""

    def update_queue(self, record: QueueRecord) -> bool:
        return record.name.startswith(_SCHEDULES) or super().update_queue(record)


class KeepsParts(WrappedStore):
    """Says that a part of a large body was removed, and keeps it."""

    def remove(self, shard: Shard, bundle_id: bytes, position: int) -> bool:
        return shard.queue == BODIES or super().remove(shard, bundle_id, position)


class LosesThePartsBehindTheFirst(WrappedStore):
    """Stores the first part of a large body, and says so of the others."""

    def append(self, request: Append) -> None:
        kept = tuple(
            each
            for each in request.bundles
            if request.shard.queue != BODIES or is_owner(each.id) or not any(each.id[-4:])
        )
        if kept:
            super().append(replace(request, bundles=kept))


BROKEN_TOPICS: tuple[type[WrappedStore], ...] = (PublishesLater, CopiesForOneOnly)
BROKEN_SCHEDULES: tuple[type[WrappedStore], ...] = (StoresTwiceWhatHasAKey, ForgetsTurns)
BROKEN_LARGE_BODIES: tuple[type[WrappedStore], ...] = (KeepsParts, LosesThePartsBehindTheFirst)
