"""Stores with one defect each in what the holder of a claim may do: leases, deliveries, acks and moves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from msgspec.structs import replace

from shardq.storage.abilities import CrossShardStore, Settle
from shardq.storage.requests import Acknowledge, Claim, Claimed, Extend, Fenced, Forward, Release
from shardq.storage.slicing import pending_in
from shardq.storage.store import Store
from shardq.storage.wrapped_store import WrappedStore
from shardq.testing.messages import of_spans

__all__ = ["BROKEN_LEASES"]


class DropsAcks(WrappedStore):
    """Confirms every second ack without doing it."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._acks = 0

    def acknowledge(self, request: Acknowledge) -> Fenced:
        self._acks += 1
        return Fenced() if self._acks % 2 == 0 else super().acknowledge(request)


class IgnoresTheFence(WrappedStore):
    """Acks what another client holds by now, and does not tell."""

    def acknowledge(self, request: Acknowledge) -> Fenced:
        fenced = super().acknowledge(request)
        for bundle_id, position in of_spans(fenced.lost):
            self.inner.remove(request.shard, bundle_id, position)
        return Fenced(gone=fenced.gone)


class HidesTheLost(WrappedStore):
    """Fences extensions and releases, but never tells that something was lost."""

    def extend(self, request: Extend) -> Fenced:
        return Fenced(gone=super().extend(request).gone)

    def release(self, request: Release) -> Fenced:
        return Fenced(gone=super().release(request).gone)


class ForgetsToHide(WrappedStore):
    """Hands messages out without hiding them from others."""

    def claim(self, request: Claim) -> Claimed:
        claimed = super().claim(replace(request, lease=0))
        return replace(claimed, lease_until=claimed.lease_until + request.lease)


class ForgetsDeliveries(WrappedStore):
    """Counts every delivery as the first."""

    def claim(self, request: Claim) -> Claimed:
        claimed = super().claim(request)
        return replace(claimed, slices=tuple(replace(each, deliveries=1) for each in claimed.slices))


class CountsEveryRelease(WrappedStore):
    """Counts a delivery that nobody started."""

    def release(self, request: Release) -> Fenced:
        return super().release(replace(request, started=True))


class CountsWhatIsPutOff(WrappedStore):
    """Counts a delivery that is not to count, if the message is given back with a delay."""

    def release(self, request: Release) -> Fenced:
        return super().release(replace(request, started=request.started or request.delay > 0))


class CountsEveryClaim(WrappedStore):
    """Counts a delivery when it is claimed, whoever says that nobody works on it yet."""

    def claim(self, request: Claim) -> Claimed:
        return super().claim(replace(request, started=True))


class CountsNoStart(WrappedStore):
    """Does not count what an extension starts."""

    def extend(self, request: Extend) -> Fenced:
        return super().extend(replace(request, starts=False))


class StartsWhatItExtends(WrappedStore):
    """Counts a delivery with every extension, asked to or not."""

    def extend(self, request: Extend) -> Fenced:
        return super().extend(replace(request, starts=True))


class PutsTheUnseenLast(WrappedStore):
    """Gives what was never delivered back behind everything that waits."""

    def release(self, request: Release) -> Fenced:
        return super().release(request if request.delay else replace(request, delay=1))


class ForgetsMoves(WrappedStore):
    """Takes what was moved elsewhere for acked."""

    def acknowledge(self, request: Acknowledge) -> Fenced:
        return super().acknowledge(replace(request, moved=False))


class TakesAcksForMoves(WrappedStore):
    """Takes what was acked for moved elsewhere."""

    def acknowledge(self, request: Acknowledge) -> Fenced:
        return super().acknowledge(replace(request, moved=True))


class ReleasesAtOnce(WrappedStore):
    """Ignores the delay of a release."""

    def release(self, request: Release) -> Fenced:
        return super().release(replace(request, delay=0))


class ForwardsInTwoSteps(WrappedStore):
    """Acks first and appends afterwards, whatever became of the ack."""

    def forward(self, request: Forward) -> Fenced:
        fenced = self.inner.acknowledge(request.acknowledge)
        self.inner.append(request.append)
        return fenced


class ShortensUnasked(WrappedStore):
    """Cuts a longer lease off when it is told to keep it."""

    def extend(self, request: Extend) -> Fenced:
        return super().extend(replace(request, shorten=True))


class SettlesStepByStep(WrappedStore):
    """Settles in several shards with a step for each, so that the first ones stay when a later one is refused."""

    def settle(self, requests: Sequence[Settle]) -> tuple[Fenced, ...]:
        inner = cast("CrossShardStore", self.inner)
        return tuple(answer for request in requests for answer in inner.settle([request]))


class TellsEachOfAll(WrappedStore):
    """Settles in several shards, and tells each request of what the others found lost or gone, too."""

    def settle(self, requests: Sequence[Settle]) -> tuple[Fenced, ...]:
        answers = super().settle(requests)
        lost = tuple(span for answer in answers for span in answer.lost)
        gone = tuple(span for answer in answers for span in answer.gone)
        return (Fenced(lost, gone),) * len(answers)


class StopsAtALostForward(WrappedStore):
    """Settles in several shards up to a forward that is not carried out, and confirms the rest."""

    def settle(self, requests: Sequence[Settle]) -> tuple[Fenced, ...]:
        answers: list[Fenced] = []
        for request in requests:
            stopped = any(
                isinstance(before, Forward) and answer != Fenced()
                for before, answer in zip(requests, answers, strict=False)
            )
            answers += [Fenced()] if stopped else super().settle([request])
        return tuple(answers)


class ExchangesWhatIsHeld(WrappedStore):
    """Takes a message that is to be exchanged from whoever holds it."""

    def forward(self, request: Forward) -> Fenced:
        fenced, pending = super().forward(request), pending_in(request.acknowledge)
        if pending is None or not fenced.lost:
            return fenced
        if self.inner.remove(request.acknowledge.shard, pending.bundle_id, pending.first):
            self.inner.append(request.append)
            return Fenced()
        return fenced


BROKEN_LEASES: tuple[type[WrappedStore], ...] = (
    DropsAcks,
    IgnoresTheFence,
    HidesTheLost,
    ForgetsToHide,
    ForgetsDeliveries,
    CountsEveryRelease,
    CountsWhatIsPutOff,
    CountsEveryClaim,
    CountsNoStart,
    StartsWhatItExtends,
    PutsTheUnseenLast,
    ForgetsMoves,
    TakesAcksForMoves,
    ReleasesAtOnce,
    ForwardsInTwoSteps,
    ExchangesWhatIsHeld,
    ShortensUnasked,
    SettlesStepByStep,
    TellsEachOfAll,
    StopsAtALostForward,
)
