"""Stores with one defect each, rarer or sharper than those of the conformance suite: the campaign has to find them."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Sequence

import msgspec

from shardq.base.shard import Shard
from shardq.core.large.layout import BODIES, is_owner
from shardq.storage.abilities import SavedFile
from shardq.storage.requests import Acknowledge, Append, DedupeEntry, Fenced
from shardq.storage.store import Capabilities, Store
from shardq.tasks.result_backend import RESULTS
from shardq.testing import WrappedStore
from tests.defective_stores.stores import BROKEN_STORES

__all__ = ["DEFECTS", "with_defect"]

RARE, FEW = 1_000, 15
TOPICS, TICKS = "_shardq/topics/", ".ticks"  # how names of queues begin and end
SLOW = 3.0  # seconds; more than who sends an occurrence is waited for


class ByShard(WrappedStore):
    """Settles shard by shard, so that a defect of one verb meets every call of it."""

    @property
    def capabilities(self) -> Capabilities:
        return msgspec.structs.replace(self.inner.capabilities, settle_across_shards=False)


class DropsOneAckInAThousand(WrappedStore):
    """Confirms an ack now and then without doing it."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._acked = random.randrange(RARE)  # so that clients that ack little have their share

    def acknowledge(self, request: Acknowledge) -> Fenced:
        spans = []
        for span in request.spans:
            before, self._acked = self._acked, self._acked + span.count
            if before // RARE == self._acked // RARE:
                spans.append(span)
        return (
            super().acknowledge(Acknowledge(request.shard, tuple(spans), request.keep)) if spans else Fenced()
        )


class AcksBeforeStoring(WrappedStore):
    """Confirms a send when the bundles are in memory, and stores them with the next one."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._waiting: list[Append] = []

    def append(self, request: Append) -> None:
        waiting, self._waiting = self._waiting, [request]
        for each in waiting:
            super().append(each)


class StoresCopiesWithTheNext(WrappedStore):
    """Confirms what a relay copies to a subscription when it is in memory, and stores it with what comes next."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._waiting: list[Append] = []

    def append(self, request: Append) -> None:
        topic, _, kind = request.shard.queue.rpartition("/")
        if not topic.startswith(TOPICS) or kind in ("log", "state"):
            super().append(request)
            return
        waiting, self._waiting = self._waiting, [request]
        for each in waiting:
            super().append(each)


class SchedulesUnderRandomIds(WrappedStore):
    """Knows no key of an occurrence, and is so slow to confirm it that another consumer sends it, too."""

    def reserve_keys(
        self, queue: str, entries: Sequence[DedupeEntry], window: int
    ) -> tuple[DedupeEntry, ...]:
        standing = super().reserve_keys(queue, entries, window)
        return tuple(entries) if queue.endswith(TICKS) else standing

    def append(self, request: Append) -> None:
        super().append(request)
        if request.shard.queue.endswith(TICKS):
            time.sleep(SLOW)


class DropsOneEntryInFifteen(WrappedStore):
    """Confirms now and then what became of tasks without storing it."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._written = random.randrange(FEW)

    def append(self, request: Append) -> None:
        if request.shard.queue == RESULTS:
            self._written += 1
            if self._written % FEW == 0:
                return
        super().append(request)


class LosesParts(WrappedStore):
    """Confirms one in twenty parts of large bodies without storing it."""

    def append(self, request: Append) -> None:
        is_part = request.shard.queue == BODIES and not any(is_owner(each.id) for each in request.bundles)
        if not is_part or random.random() > 1 / 20:
            super().append(request)


class KeepsParts(WrappedStore):
    """Confirms that a part of a large body is removed, and keeps it now and then."""

    def remove(self, shard: Shard, bundle_id: bytes, position: int) -> bool:
        if shard.queue == BODIES and not is_owner(bundle_id) and random.random() < 1 / 3:
            return True
        return super().remove(shard, bundle_id, position)


class SavesAnEarlierState(WrappedStore):
    """Gives a copy of the first backup for every later one."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._first: SavedFile | None = None

    def back_up(self, target: str, *, overwrite: bool = False) -> SavedFile:
        if self._first is None:
            self._first = super().back_up(target, overwrite=overwrite)
        else:
            shutil.copyfile(self._first.path, target)
        return self._first


DEFECTS: dict[str, type[WrappedStore]] = {
    each.__name__: each
    for each in (
        *BROKEN_STORES,
        DropsOneAckInAThousand,
        AcksBeforeStoring,
        StoresCopiesWithTheNext,
        SchedulesUnderRandomIds,
        DropsOneEntryInFifteen,
        LosesParts,
        KeepsParts,
        SavesAnEarlierState,
    )
}


def with_defect(name: str, store: Store) -> Store:
    """Return the store with the defect of that name; as it is without one."""
    return DEFECTS[name](ByShard(store)) if name else store
