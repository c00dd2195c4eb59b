"""Stores with one defect each that lets limits be exceeded, or keeps what they hold back from coming."""

from __future__ import annotations

import os

from msgspec.structs import replace

from shardq.base.outgoing_message import SEPARATOR
from shardq.base.shard import INTERNAL, Shard
from shardq.storage.requests import Append, Claim, Claimed, Extend, Fenced, Release, Span
from shardq.storage.store import Store
from shardq.storage.wrapped_store import WrappedStore

__all__ = ["BROKEN_LIMITS"]

_PERMITS, _RATE = f"{INTERNAL}permits/", ".rate"
_FOR_EVER = 10**13  # microseconds


class LendsTwice(WrappedStore):
    """Gives permits back while they are held, so that others get them too."""

    def claim(self, request: Claim) -> Claimed:
        claimed = super().claim(request)
        if request.shard.queue.startswith(_PERMITS):
            self.inner.release(Release(request.shard, _spans(request, claimed), 0))
        return claimed


class KeepsThePermitsOfTheDead(WrappedStore):
    """Holds a permit until it is given back."""

    def claim(self, request: Claim) -> Claimed:
        is_permit = request.shard.queue.startswith(_PERMITS)
        return super().claim(replace(request, lease=_FOR_EVER) if is_permit else request)

    def extend(self, request: Extend) -> Fenced:
        is_permit = request.shard.queue.startswith(_PERMITS)
        return super().extend(replace(request, lease=_FOR_EVER) if is_permit else request)


class GivesRatesBackAtOnce(WrappedStore):
    """Lets a permit of a rate be taken again before its period is over."""

    def extend(self, request: Extend) -> Fenced:
        is_rate = request.shard.queue.startswith(_PERMITS) and request.shard.queue.endswith(_RATE)
        return super().extend(replace(request, lease=0) if is_rate else request)


class DeliversWhatIsHeldBack(WrappedStore):
    """Counts a delivery of what waits, when there is no permit for it."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._last: Shard | None = None

    def append(self, request: Append) -> None:
        super().append(request)
        if not request.shard.queue.startswith(_PERMITS):
            self._last = request.shard

    def claim(self, request: Claim) -> Claimed:
        claimed = super().claim(request)
        if not claimed.slices and request.shard.queue.startswith(_PERMITS) and self._last:
            self._deliver(Claim(self._last, os.urandom(16), 1, request.lease))
        return claimed

    def _deliver(self, request: Claim) -> None:
        super().release(Release(request.shard, _spans(request, super().claim(request)), 0))


class GivesLanesToEveryone(WrappedStore):
    """Takes each message of a lane for a lane of its own."""

    def append(self, request: Append) -> None:
        alone = (
            replace(bundle, group=f"{bundle.group}{os.urandom(4).hex()}")
            if SEPARATOR in bundle.group
            else bundle
            for bundle in request.bundles
        )
        super().append(replace(request, bundles=tuple(alone)))


def _spans(request: Claim, claimed: Claimed) -> tuple[Span, ...]:
    return tuple(Span(each.bundle.id, each.first, each.count, request.token) for each in claimed.slices)


BROKEN_LIMITS: tuple[type[WrappedStore], ...] = (
    LendsTwice,
    KeepsThePermitsOfTheDead,
    GivesRatesBackAtOnce,
    DeliversWhatIsHeldBack,
    GivesLanesToEveryone,
)
