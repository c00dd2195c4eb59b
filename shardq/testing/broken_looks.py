"""Stores with one defect each in what they tell of bundles: when they expire, how large they are."""

from __future__ import annotations

from msgspec.structs import replace

from shardq.sharding.shard import Shard
from shardq.storage.requests import Append, Claim, Claimed, EntryState, Peek, PeekPage, ShardCounts
from shardq.storage.wrapped_store import WrappedStore

__all__ = ["BROKEN_LOOKS"]


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

    def count(self, shard: Shard, *, sizes: bool = False) -> ShardCounts:  # noqa: ARG002
        return super().count(shard)


BROKEN_LOOKS: tuple[type[WrappedStore], ...] = (
    ForgetsExpiry,
    HidesExpiryWithTheBodies,
    ForgetsExpiryOfWhatItSplits,
    MeasuresWhatIsHeld,
    MeasuresWholeBundles,
    MeasuresNothing,
)
