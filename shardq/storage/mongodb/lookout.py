"""Where this client reads from in each shard, and what it tells the others of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shardq.sharding.shard import Shard
from shardq.storage.mongodb import floors
from shardq.storage.mongodb.server_clock import ServerClock
from shardq.storage.mongodb.session import Session
from shardq.storage.mongodb.sight import GUARD, PRIORITIES, Floors, Sight, Sights
from shardq.storage.requests import Bundle

__all__ = ["Lookout"]

_LATE = GUARD - 2_000_000  # the clocks of two clients agree well within the difference


class Lookout:
    """The sights of the shards."""

    def __init__(self, session: Session, clock: ServerClock) -> None:
        self._session, self._clock, self._sights = session, clock, Sights()

    def sights(self, shards: Sequence[Shard], now: int, *, afresh: bool = False) -> list[Sight]:
        """Return the sights of the shards, of a second ago at most; ``afresh`` they begin at the floors."""
        known = [self._sights.of(shard) for shard in shards]
        old = [
            shard
            for shard, sight in zip(shards, known, strict=True)
            if afresh or sight is None or sight.is_old(now)
        ]
        if not old:
            return [sight for sight in known if sight is not None]
        found = floors.read(self._session, old)
        fresh = {shard: self._sights.see(shard, found.get(shard, Floors()), now) for shard in old}
        return [
            fresh[shard] if shard in fresh else sight or fresh[shard]
            for shard, sight in zip(shards, known, strict=True)
        ]

    def moved(self, shard: Shard, sight: Sight, now: int) -> None:
        """The sight has moved on: tell the others when that spares them something."""
        if (raised := sight.raised(now)) is not None:
            floors.raise_to(self._session, shard, raised)
            sight.floors = raised

    def stored(self, shard: Shard, bundles: Iterable[Bundle]) -> None:
        """Bundles can be seen from now on; say so where that is late."""
        last = self._clock.now() - _LATE
        late: dict[int, int] = {}
        for bundle in bundles:
            if bundle.due < last:
                late[bundle.priority] = min(bundle.due, late.get(bundle.priority, bundle.due))
        if late:
            self._lower(shard, late)

    def put_off(self, shard: Shard, until: int) -> None:
        """Bundles of the shard are due at that moment from now on; say so where that is late."""
        if until < self._clock.now() - _LATE:
            self._lower(shard, dict.fromkeys(PRIORITIES, until))

    def _lower(self, shard: Shard, moments: dict[int, int]) -> None:
        floors.lower(self._session, shard, moments)
        self._sights.forget([shard])
