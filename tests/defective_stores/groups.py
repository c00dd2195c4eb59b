"""Stores with one defect each in the order of groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from shardq.base.shard import Shard
from shardq.storage.requests import (
    BLOCKED,
    Acknowledge,
    Append,
    Bundle,
    Claim,
    Claimed,
    ClaimedSlice,
    Extend,
    Fenced,
    Forward,
    Peek,
    PeekPage,
    Probe,
    Release,
    Span,
    StoredSlice,
)
from shardq.storage.store import Store
from shardq.storage.wrapped_store import WrappedStore

__all__ = ["BROKEN_GROUPS"]


class LetsTheNextGo(WrappedStore):
    """Delivers the messages of a group while earlier ones are held, delayed or given back."""

    def append(self, request: Append) -> None:
        super().append(replace(request, bundles=tuple(map(self._apart, request.bundles))))

    def forward(self, request: Forward) -> Fenced:
        bundles = tuple(map(self._apart, request.append.bundles))
        return super().forward(replace(request, append=replace(request.append, bundles=bundles)))

    def claim(self, request: Claim) -> Claimed:
        claimed = super().claim(request)
        return replace(claimed, slices=tuple(replace(each, bundle=_joined(each)) for each in claimed.slices))

    def peek(self, request: Peek) -> PeekPage:
        page = super().peek(request)
        return replace(page, slices=tuple(replace(each, bundle=_joined(each)) for each in page.slices))

    def find(self, shard: Shard, bundle_id: bytes, position: int) -> StoredSlice | None:
        found = super().find(shard, bundle_id, position)
        return found and replace(found, bundle=_joined(found))

    @staticmethod
    def _apart(bundle: Bundle) -> Bundle:
        return replace(bundle, group=f"{bundle.group}\n{bundle.id.hex()}") if bundle.group else bundle


def _joined(piece: ClaimedSlice | StoredSlice) -> Bundle:
    return replace(piece.bundle, group=piece.bundle.group.partition("\n")[0])


class _TakesFewer(WrappedStore):
    """Gives a part of what a claim of groups took back at once."""

    def claim(self, request: Claim) -> Claimed:
        claimed = super().claim(request)
        if not request.shard.is_grouped:
            return claimed
        kept = self.kept(request.shard, claimed.slices)
        left = [each for each in claimed.slices if each not in kept]
        spans = tuple(Span(each.bundle.id, each.first, each.count, request.token) for each in left)
        super().release(Release(request.shard, spans, started=False))
        return replace(claimed, slices=tuple(kept))

    def kept(self, shard: Shard, slices: Sequence[ClaimedSlice]) -> list[ClaimedSlice]:
        """Return what is handed out."""
        raise NotImplementedError


class ForgetsToLetTheNextGo(_TakesFewer):
    """Delivers nothing more of a group of which something was acked."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._stuck: set[tuple[Shard, str]] = set()

    def acknowledge(self, request: Acknowledge) -> Fenced:
        for span in request.spans if request.shard.is_grouped else ():
            found = self.inner.find(request.shard, span.bundle_id, span.first)
            if found is not None:
                self._stuck.add((request.shard, found.bundle.group))
        return super().acknowledge(request)

    def kept(self, shard: Shard, slices: Sequence[ClaimedSlice]) -> list[ClaimedSlice]:
        return [each for each in slices if (shard, each.bundle.group) not in self._stuck]


class TakesOneOfEachGroup(_TakesFewer):
    """Takes the first slices of groups only, whatever room there is."""

    def kept(self, shard: Shard, slices: Sequence[ClaimedSlice]) -> list[ClaimedSlice]:
        first: dict[str, ClaimedSlice] = {}
        for each in slices:
            first.setdefault(each.bundle.group, each)
        return list(first.values())


class OrdersGroupsByIds(WrappedStore):
    """Hands the messages of a group out in the order of their bundles' ids."""

    def claim(self, request: Claim) -> Claimed:
        claimed = super().claim(request)
        if not request.shard.is_grouped:
            return claimed
        return replace(claimed, slices=tuple(sorted(claimed.slices, key=lambda each: each.bundle.id)))


class LosesTheTailOfAGroup(WrappedStore):
    """Loses a message of what a claim leaves over when it splits a slice of a group."""

    def claim(self, request: Claim) -> Claimed:
        claimed = super().claim(request)
        for each in claimed.slices if request.shard.is_grouped else ():
            rest = each.first + each.count
            if self.inner.find(request.shard, each.bundle.id, rest) is not None:
                self.inner.remove(request.shard, each.bundle.id, rest)
        return claimed


class LeavesHeldWhatIsBehind(WrappedStore):
    """Ends the lease of what is given back, and leaves what follows it to its holder."""

    def release(self, request: Release) -> Fenced:
        if not request.shard.is_grouped:
            return super().release(request)
        return super().extend(Extend(request.shard, request.spans, request.delay))


class BlocksWhatIsBehind(WrappedStore):
    """Lets all that a claim holds of a shard block its groups, with the first message that does."""

    def extend(self, request: Extend) -> Fenced:
        tokens = {span.token for span in request.spans}
        held = self.inner.peek(Peek(request.shard, 1000, held=True)).slices if request.blocks else ()
        more = tuple(
            Span(each.bundle.id, each.first, each.count, each.token) for each in held if each.token in tokens
        )
        return super().extend(replace(request, spans=(*request.spans, *more)))


class LeavesWhatBlocksToItsHolder(WrappedStore):
    """Finishes what blocks its group for the claim that held it."""

    def acknowledge(self, request: Acknowledge) -> Fenced:
        fenced = super().acknowledge(request)
        blocked = tuple(replace(span, token=BLOCKED) for span in fenced.lost)
        return super().acknowledge(replace(request, spans=blocked)) if blocked else fenced


class ReplacesAtTheEnd(WrappedStore):
    """Puts what replaces a message at the end of its group."""

    def forward(self, request: Forward) -> Fenced:
        return super().forward(replace(request, in_place=False))


class OffersWhatIsBehind(WrappedStore):
    """Tells the due times of messages that others are before."""

    def probe(
        self, shards: Sequence[Shard], *, glance: bool = False, deep: bool = False
    ) -> tuple[Probe, ...]:
        probes = super().probe(shards, glance=glance, deep=deep)
        return tuple(_with_all(probe, self.inner.peek, self.now()) for probe in probes)


def _with_all(probe: Probe, peek: Callable[[Peek], PeekPage], now: int) -> Probe:
    if not probe.shard.is_grouped:
        return probe
    dues = [each.due for each in peek(Peek(probe.shard, 1000)).slices if each.due > now]
    return replace(probe, next_due=min(dues, default=None))


BROKEN_GROUPS: tuple[type[WrappedStore], ...] = (
    LetsTheNextGo,
    ForgetsToLetTheNextGo,
    TakesOneOfEachGroup,
    OrdersGroupsByIds,
    LosesTheTailOfAGroup,
    LeavesHeldWhatIsBehind,
    BlocksWhatIsBehind,
    LeavesWhatBlocksToItsHolder,
    ReplacesAtTheEnd,
    OffersWhatIsBehind,
)
