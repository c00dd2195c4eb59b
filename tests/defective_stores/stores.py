"""Stores with one defect each: whoever proves stores has to catch all of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from shardq.base.shard import Shard
from shardq.storage.listening import Listener
from shardq.storage.requests import (
    Acknowledge,
    Append,
    Claim,
    Claimed,
    DedupeEntry,
    Fenced,
    Peek,
    PeekPage,
    QueueRecord,
    ShardCounts,
    Sweep,
)
from shardq.storage.store import Store
from shardq.storage.wrapped_store import WrappedStore
from tests.defective_stores.applications import BROKEN_LARGE_BODIES, BROKEN_SCHEDULES, BROKEN_TOPICS
from tests.defective_stores.claims import BROKEN_CLAIMS
from tests.defective_stores.groups import BROKEN_GROUPS
from tests.defective_stores.keys import BROKEN_KEYS
from tests.defective_stores.leases import BROKEN_LEASES
from tests.defective_stores.limits import BROKEN_LIMITS
from tests.defective_stores.reads import BROKEN_READS
from tests.defective_stores.transactions import BROKEN_JOINED_CLIENTS, BROKEN_TRANSACTIONS

__all__ = ["BROKEN_STORES"]


class DeliversEarly(WrappedStore):
    """Lets a message go a second before it is due."""

    def append(self, request: Append) -> None:
        early = (replace(bundle, due=bundle.due - 1_000_000) for bundle in request.bundles)
        super().append(replace(request, bundles=tuple(early)))


class DuplicatesAppends(WrappedStore):
    """Stores a bundle once more when its append is repeated."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._seen: set[bytes] = set()

    def append(self, request: Append) -> None:
        bundles = [
            replace(bundle, id=os.urandom(16)) if bundle.id in self._seen else bundle
            for bundle in request.bundles
        ]
        self._seen |= {bundle.id for bundle in bundles}
        super().append(replace(request, bundles=tuple(bundles)))


class LosesTheLastOfABulk(WrappedStore):
    """Stores all bundles of an append but the last, when there are several."""

    def append(self, request: Append) -> None:
        super().append(replace(request, bundles=request.bundles[: max(1, len(request.bundles) - 1)]))


class KeepsTheNotesOfSenders(WrappedStore):
    """Writes bundles with all that they have, in place of the fields that are to be stored."""

    def append(self, request: Append) -> None:
        msgspec.msgpack.encode(request.bundles)
        super().append(request)


class LosesTheRestOfASplit(WrappedStore):
    """Loses a message of what a claim leaves over when it splits a slice."""

    def claim(self, request: Claim) -> Claimed:
        claimed = super().claim(request)
        for each in claimed.slices:
            rest = each.first + each.count
            found = self.inner.find(request.shard, each.bundle.id, rest)
            if found is not None and found.first == rest and found.deliveries == 0:
                self.inner.remove(request.shard, each.bundle.id, rest)
        return claimed


class TakesMoreThanAsked(WrappedStore):
    """Claims whole slices, whatever the limit."""

    def claim(self, request: Claim) -> Claimed:
        return super().claim(replace(request, limit=request.limit + 1))


class ClaimsInDisorder(WrappedStore):
    """Hands the slices of a claim out in reverse order."""

    def claim(self, request: Claim) -> Claimed:
        claimed = super().claim(request)
        return replace(claimed, slices=claimed.slices[::-1])


class ConfirmsKeysForAnyone(WrappedStore):
    """Confirms a key whatever message it stands for."""

    def confirm_keys(self, queue: str, entries: Sequence[DedupeEntry]) -> None:
        super().confirm_keys(queue, self.inner.reserve_keys(queue, entries, 0))


class RemembersDroppedQueues(WrappedStore):
    """Takes an append to a queue that was created again for a repetition of one to the queue before."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._finished: set[bytes] = set()

    def acknowledge(self, request: Acknowledge) -> Fenced:
        fenced = super().acknowledge(request)
        self._finished |= {span.bundle_id for span in request.spans}
        return fenced

    def append(self, request: Append) -> None:
        bundles = tuple(bundle for bundle in request.bundles if bundle.id not in self._finished)
        super().append(replace(request, bundles=bundles))


class KeepsKeysOfDroppedQueues(WrappedStore):
    """Brings the keys of a dropped queue back with the next queue of its name."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._keys: dict[tuple[str, str], DedupeEntry] = {}

    def reserve_keys(
        self, queue: str, entries: Sequence[DedupeEntry], window: int
    ) -> tuple[DedupeEntry, ...]:
        standing = super().reserve_keys(queue, entries, window)
        self._keys |= {(queue, entry.key): entry for entry in standing if window}
        return standing

    def create_queue(self, record: QueueRecord) -> bool:
        created = super().create_queue(record)
        for (queue, _), entry in list(self._keys.items()):
            if created and queue == record.name:
                super().reserve_keys(queue, [entry], 600_000_000)
        return created


class KeepsNoHistory(WrappedStore):
    """Forgets messages that should have been kept."""

    def acknowledge(self, request: Acknowledge) -> Fenced:
        return super().acknowledge(replace(request, keep=False))


class ShowsBodiesUnasked(WrappedStore):
    """Reads the bodies for whoever looks without them, too."""

    def peek(self, request: Peek) -> PeekPage:
        return super().peek(replace(request, bodies=True))


class PurgesOnlyWhatWaits(WrappedStore):
    """Leaves one message when it purges."""

    def purge(self, shard: Shard) -> int:
        counts = self.inner.count(shard)
        return 0 if counts.in_flight else super().purge(shard)


class MiscountsTheHeld(WrappedStore):
    """Counts held messages among the ready ones too."""

    def count(self, shard: Shard, *, sizes: bool = False) -> ShardCounts:
        counts = super().count(shard, sizes=sizes)
        return replace(counts, ready=counts.ready + counts.in_flight)


class ForgetsShards(WrappedStore):
    """Leaves the last shard out of the directory."""

    def shards(self, queue: str) -> tuple[Shard, ...]:
        return super().shards(queue)[:-1]


class SweepsNothing(WrappedStore):
    """Never removes a leftover."""

    def sweep(self, request: Sweep) -> int:
        return 0


class ReservesForEveryone(WrappedStore):
    """Lets every message have the key that it asks for."""

    def reserve_keys(
        self, queue: str, entries: Sequence[DedupeEntry], window: int
    ) -> tuple[DedupeEntry, ...]:
        super().reserve_keys(queue, entries, window)
        return tuple(entries)


class DropsTheNameOnly(WrappedStore):
    """Keeps a dropped queue, but does not show it any more."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._dropped: set[str] = set()

    def drop_queue(self, name: str, seen: QueueRecord | None = None) -> bool:
        record = None if name in self._dropped else self.inner.load_queue(name)
        known = record is not None and seen in (None, record)
        if known:
            self._dropped.add(name)
        return known


class DropsWhatHasChanged(WrappedStore):
    """Drops a queue whatever has become of the record that was seen."""

    def drop_queue(self, name: str, seen: QueueRecord | None = None) -> bool:
        return super().drop_queue(name, seen and self.inner.load_queue(name))


class ReadsAPathInNames(WrappedStore):
    """Takes two signs in the name of a queue for one."""

    def create_queue(self, record: QueueRecord) -> bool:
        return super().create_queue(replace(record, name=record.name.replace("@", "/")))

    def load_queue(self, name: str) -> QueueRecord | None:
        record = super().load_queue(name.replace("@", "/"))
        return None if record is None else replace(record, name=name)

    def drop_queue(self, name: str, seen: QueueRecord | None = None) -> bool:
        return super().drop_queue(name.replace("@", "/"), seen)


class TellsOfOneQueueOnly(WrappedStore):
    """Forgets the other queues that something came into when it tells of one."""

    def listen(self, wake: Callable[[], None]) -> Listener:
        return _Forgetful(super().listen(wake))


class _Forgetful:
    def __init__(self, inner: Listener) -> None:
        self.rest, self._inner = inner.rest, inner

    def news(self, queues: Sequence[str]) -> tuple[str, ...]:
        return self._inner.news(queues)[:1]


BROKEN_STORES: tuple[type[WrappedStore], ...] = (
    *BROKEN_LEASES,
    *BROKEN_CLAIMS,
    *BROKEN_READS,
    *BROKEN_GROUPS,
    *BROKEN_KEYS,
    *BROKEN_LIMITS,
    *BROKEN_TRANSACTIONS,
    *BROKEN_JOINED_CLIENTS,
    *BROKEN_TOPICS,
    *BROKEN_SCHEDULES,
    *BROKEN_LARGE_BODIES,
    DeliversEarly,
    DuplicatesAppends,
    LosesTheLastOfABulk,
    KeepsTheNotesOfSenders,
    LosesTheRestOfASplit,
    TakesMoreThanAsked,
    ClaimsInDisorder,
    ConfirmsKeysForAnyone,
    RemembersDroppedQueues,
    KeepsKeysOfDroppedQueues,
    KeepsNoHistory,
    ShowsBodiesUnasked,
    PurgesOnlyWhatWaits,
    MiscountsTheHeld,
    ForgetsShards,
    SweepsNothing,
    ReservesForEveryone,
    DropsTheNameOnly,
    DropsWhatHasChanged,
    ReadsAPathInNames,
    TellsOfOneQueueOnly,
)
