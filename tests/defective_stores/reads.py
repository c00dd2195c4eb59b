"""Stores with one defect each in what they tell: when bundles expire, how large they are, and who holds them."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from shardq.base.shard import Shard
from shardq.storage.records import Registrations, SeenConsumer
from shardq.storage.requests import (
    Append,
    Claim,
    Claimed,
    EntryState,
    Peek,
    PeekPage,
    ShardCounts,
    StoredSlice,
)
from shardq.storage.store import Store
from shardq.storage.wrapped_store import WrappedStore

__all__ = ["BROKEN_READS"]


class ForgetsExpiry(WrappedStore):
    """Stores no moment of expiry."""

    def append(self, request: Append) -> None:
        lasting = (replace(bundle, expires_at=None) for bundle in request.bundles)
        super().append(replace(request, bundles=tuple(lasting)))


class HidesExpiryWithTheBodies(WrappedStore):
    """Has the moment of expiry only for whoever reads the bodies."""

    def peek(self, request: Peek) -> PeekPage:
        page = super().peek(request)
        if request.bodies:
            return page
        bare = (replace(each, bundle=replace(each.bundle, expires_at=None)) for each in page.slices)
        return replace(page, slices=tuple(bare))


class ForgetsExpiryOfWhatItSplits(WrappedStore):
    """Answers no moment of expiry for parts of a bundle."""

    def claim(self, request: Claim) -> Claimed:
        claimed = super().claim(request)
        slices = (
            each
            if each.count == each.bundle.count
            else replace(each, bundle=replace(each.bundle, expires_at=None))
            for each in claimed.slices
        )
        return replace(claimed, slices=tuple(slices))


class LooksAtAllTimes(WrappedStore):
    """Shows whatever waits, when only what is due within a time is asked for."""

    def peek(self, request: Peek) -> PeekPage:
        return super().peek(request if request.processed else replace(request, since=0, until=2**62))


class LooksAtNoOtherPriority(WrappedStore):
    """Shows of a time what has the first priority only."""

    def peek(self, request: Peek) -> PeekPage:
        page = super().peek(request)
        if request.processed or not request.of_period:
            return page
        first = tuple(each for each in page.slices if not each.bundle.priority)
        return replace(page, slices=first)


class MeasuresWhatIsHeld(WrappedStore):
    """Counts the bytes of all messages, held ones too."""

    def count(self, shard: Shard, *, sizes: bool = False) -> ShardCounts:
        counts = super().count(shard, sizes=sizes)
        if not sizes:
            return counts
        slices = self.inner.peek(Peek(shard, 10_000)).slices
        return replace(counts, bytes=sum(len(e.bundle.data) * e.count // e.bundle.count for e in slices))


class MeasuresWholeBundles(WrappedStore):
    """Counts the bytes of a bundle until its last message is finished."""

    def count(self, shard: Shard, *, sizes: bool = False) -> ShardCounts:
        counts = super().count(shard, sizes=sizes)
        if not sizes:
            return counts
        slices = self.inner.peek(Peek(shard, 10_000)).slices
        waiting = {each.bundle.id: each.bundle for each in slices if each.state is not EntryState.IN_FLIGHT}
        return replace(counts, bytes=sum(len(bundle.data) for bundle in waiting.values()))


class MeasuresNothing(WrappedStore):
    """Answers no bytes."""

    def count(self, shard: Shard, *, sizes: bool = False) -> ShardCounts:
        return super().count(shard)


class HidesWhoHolds(WrappedStore):
    """Shows no claim for whoever does not read the bodies."""

    def peek(self, request: Peek) -> PeekPage:
        page = super().peek(request)
        if request.bodies:
            return page
        return replace(page, slices=tuple(replace(each, token=None) for each in page.slices))


class CountsEveryDelivery(WrappedStore):
    """Shows what was claimed ahead as if it had been handed out."""

    def find(self, shard: Shard, bundle_id: bytes, position: int) -> StoredSlice | None:
        found = super().find(shard, bundle_id, position)
        return found and replace(found, started=True)


class AnswersOnlyWhatItFinds(WrappedStore):
    """Leaves out what is not stored, of what is looked for together."""

    def find_many(self, shard: Shard, places: Sequence[tuple[bytes, int]]) -> tuple[StoredSlice | None, ...]:
        return tuple(each for each in super().find_many(shard, places) if each is not None)


class FindsBundlesOnce(WrappedStore):
    """Answers for each bundle what holds the first message of it that is looked for."""

    def find_many(self, shard: Shard, places: Sequence[tuple[bytes, int]]) -> tuple[StoredSlice | None, ...]:
        found: dict[bytes, StoredSlice | None] = {}
        for (bundle_id, _), each in zip(places, super().find_many(shard, places), strict=True):
            found.setdefault(bundle_id, each)
        return tuple(found[bundle_id] for bundle_id, _ in places)


class ShowsWhatNobodyHolds(WrappedStore):
    """Shows everything that waits to whoever looks for what is held."""

    def peek(self, request: Peek) -> PeekPage:
        return super().peek(replace(request, held=False))


class HidesWhatIsHeldForLong(WrappedStore):
    """Shows the first page only of what is held."""

    def peek(self, request: Peek) -> PeekPage:
        page = super().peek(request)
        return replace(page, after=b"") if request.held else page


class ForgetsTheDead(WrappedStore):
    """Knows a consumer no more when it is not live."""

    def seen_consumers(self, queue: str) -> tuple[SeenConsumer, ...]:
        return tuple(each for each in super().seen_consumers(queue) if each.until > self.now())


class RemembersForEver(WrappedStore):
    """Tells of all consumers that there ever were, those that deregistered too."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._seen: dict[str, dict[str, SeenConsumer]] = {}

    def register_consumer(self, queues: Sequence[str], consumer: str, lifetime: int) -> Registrations:
        for queue in queues:
            seen = SeenConsumer(consumer, self.now() + lifetime)
            self._seen.setdefault(queue, {})[consumer] = seen
        return super().register_consumer(queues, consumer, lifetime)

    def seen_consumers(self, queue: str) -> tuple[SeenConsumer, ...]:
        known = {each.consumer: each for each in super().seen_consumers(queue)}
        return tuple(sorted((self._seen.get(queue, {}) | known).values()))


class BelievesEveryClock(WrappedStore):
    """Counts consumers as live until the ends of their registrations, however far ahead these are."""

    def register_consumer(self, queues: Sequence[str], consumer: str, lifetime: int) -> Registrations:
        registered = super().register_consumer(queues, consumer, lifetime)
        now = self.now()
        live = [{each.consumer for each in self.seen_consumers(name) if each.until > now} for name in queues]
        return tuple(
            each and replace(each, consumers=tuple(sorted(names)))
            for each, names in zip(registered, live, strict=True)
        )


BROKEN_READS: tuple[type[WrappedStore], ...] = (
    ForgetsExpiry,
    HidesExpiryWithTheBodies,
    ForgetsExpiryOfWhatItSplits,
    LooksAtAllTimes,
    LooksAtNoOtherPriority,
    MeasuresWhatIsHeld,
    MeasuresWholeBundles,
    MeasuresNothing,
    HidesWhoHolds,
    CountsEveryDelivery,
    AnswersOnlyWhatItFinds,
    FindsBundlesOnce,
    ShowsWhatNobodyHolds,
    HidesWhatIsHeldForLong,
    ForgetsTheDead,
    RemembersForEver,
    BelievesEveryClock,
)
