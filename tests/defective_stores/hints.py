"""A store with a hint that is looked behind as it has to be, and stores whose hint hides messages for good."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from msgspec.structs import replace

from shardq.base.shard import Shard
from shardq.storage.requests import Append, Claim, Claimed, Probe, ShardCounts, Sweep
from shardq.storage.wrapped_store import WrappedStore

__all__ = ["BROKEN_HINTS", "HintedStore"]


class HintedStore(WrappedStore):
    """Keeps a low watermark and a directory of its own for each shard, both for all clients of the process.

    They say nothing until :meth:`mislead` makes them wrong: then nothing of the shard is offered, claimed, counted or
    listed, until a deep probe or a sweep looks behind them.
    """

    above: ClassVar[set[Shard]] = set()  # shards whose watermark is above everything in them
    unlisted: ClassVar[set[Shard]] = set()

    def __init_subclass__(cls) -> None:
        cls.above, cls.unlisted = set(), set()

    @classmethod
    def mislead(cls, shard: Shard) -> bool:
        """Make both wrong, for every client."""
        cls.above.add(shard)
        cls.unlisted.add(shard)
        return True

    def append(self, request: Append) -> None:
        """List the shard, and store the bundles; the watermark is not looked at."""
        self.unlisted.discard(request.shard)
        super().append(request)

    def claim(self, request: Claim) -> Claimed:
        """Claim from the watermark on."""
        if request.shard in self.above:
            return Claimed((), self.now() + request.lease)
        return super().claim(request)

    def count(self, shard: Shard, *, sizes: bool = False) -> ShardCounts:
        """Count from the watermark on."""
        return ShardCounts() if shard in self.above else super().count(shard, sizes=sizes)

    def shards(self, queue: str) -> tuple[Shard, ...]:
        """Show the directory."""
        return tuple(shard for shard in super().shards(queue) if shard not in self.unlisted)

    def probe(
        self, shards: Sequence[Shard], *, glance: bool = False, deep: bool = False
    ) -> tuple[Probe, ...]:
        """Look from the watermark on, or behind it."""
        if deep:
            self.look_behind(shards)
        found = super().probe(shards, glance=glance, deep=deep)
        return tuple(Probe(each.shard) if self.hides(each.shard, deep=deep) else each for each in found)

    def sweep(self, request: Sweep) -> int:
        """Look behind the low watermarks of everything that is stored, and remove leftovers."""
        self.look_behind(self.swept(request.queue))
        return super().sweep(request)

    def hides(self, shard: Shard, *, deep: bool) -> bool:
        """Tell whether a probe offers nothing."""
        return shard in self.above

    def swept(self, queue: str) -> Sequence[Shard]:
        """Return the shards that a sweep looks at."""
        return self.inner.shards(queue)

    def look_behind(self, shards: Sequence[Shard]) -> None:
        """Put everything right."""
        self.above.difference_update(shards)
        self.unlisted.difference_update(shards)


class BelievesItsWatermarkAlways(HintedStore):
    """Goes by the watermark in deep probes, too."""

    def probe(
        self, shards: Sequence[Shard], *, glance: bool = False, deep: bool = False
    ) -> tuple[Probe, ...]:
        """Look from the watermark on."""
        found = self.inner.probe(shards, glance=glance, deep=deep)
        return tuple(Probe(each.shard) if each.shard in self.above else each for each in found)


class NeverLowersItsWatermark(HintedStore):
    """Offers what a deep probe finds, and leaves the watermark above it."""

    def look_behind(self, shards: Sequence[Shard]) -> None:
        """List the shards."""
        self.unlisted.difference_update(shards)

    def hides(self, shard: Shard, *, deep: bool) -> bool:
        """A deep probe offers everything."""
        return not deep and shard in self.above


class NeverListsAgain(HintedStore):
    """Finds what a shard holds, and does not list the shard."""

    def look_behind(self, shards: Sequence[Shard]) -> None:
        """Lower the low watermarks."""
        self.above.difference_update(shards)


class LooksDeepAtTheListed(HintedStore):
    """Leaves out, in deep probes, what the directory does not list."""

    def look_behind(self, shards: Sequence[Shard]) -> None:
        """Put right what is listed."""
        super().look_behind([shard for shard in shards if shard not in self.unlisted])


class LooksDeepAtOneShard(HintedStore):
    """Looks behind the hints of the first shard of a deep probe only."""

    def look_behind(self, shards: Sequence[Shard]) -> None:
        """Put the first right."""
        super().look_behind(shards[:1])


class LowersItsWatermarkForItself(HintedStore):
    """Puts a watermark right for the client that looked; the others go on behind theirs."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self._lowered: set[Shard] = set()

    def look_behind(self, shards: Sequence[Shard]) -> None:
        """List the shards, and remember which to look behind."""
        self.unlisted.difference_update(shards)
        self._lowered.update(shards)

    def hides(self, shard: Shard, *, deep: bool) -> bool:
        """It offers what it has looked at."""
        return shard in self.above - self._lowered

    def claim(self, request: Claim) -> Claimed:
        """Claim what it has looked at."""
        return self.inner.claim(request) if request.shard in self._lowered else super().claim(request)

    def count(self, shard: Shard, *, sizes: bool = False) -> ShardCounts:
        """Count what it has looked at."""
        if shard in self._lowered:
            return self.inner.count(shard, sizes=sizes)
        return super().count(shard, sizes=sizes)


class OffersTheLastAfterADeepLook(HintedStore):
    """Tells of a shard that was looked at deeply only that something lies in it, as if it came last."""

    def probe(
        self, shards: Sequence[Shard], *, glance: bool = False, deep: bool = False
    ) -> tuple[Probe, ...]:
        """Tell the last priority."""
        found = super().probe(shards, glance=glance, deep=deep)
        last = (each if each.priority is None else replace(each, priority=9) for each in found)
        return tuple(last) if deep else found


class SweepsByTheDirectory(HintedStore):
    """Looks, in sweeps, at nothing but what is listed."""

    def swept(self, queue: str) -> Sequence[Shard]:
        """Return those that are listed."""
        return self.shards(queue)


class SweepsBelieveTheWatermark(HintedStore):
    """Lists in a sweep what is stored, and leaves the low watermarks above it."""

    def sweep(self, request: Sweep) -> int:
        """List, and remove leftovers."""
        self.unlisted.difference_update(self.swept(request.queue))
        return self.inner.sweep(request)


BROKEN_HINTS: tuple[type[HintedStore], ...] = (
    BelievesItsWatermarkAlways,
    NeverLowersItsWatermark,
    NeverListsAgain,
    LooksDeepAtTheListed,
    LooksDeepAtOneShard,
    LowersItsWatermarkForItself,
    OffersTheLastAfterADeepLook,
    SweepsByTheDirectory,
    SweepsBelieveTheWatermark,
)
