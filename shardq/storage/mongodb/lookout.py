"""Where this client reads from in each shard, and what it tells the others of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from shardq.sharding.shard import Shard
from shardq.storage.mongodb import floors
from shardq.storage.mongodb.session import Session
from shardq.storage.mongodb.sight import LATE, NOWHERE, PRIORITIES, Floors, Sight, Sights
from shardq.storage.requests import Bundle
from shardq.storage.server_clock import ServerClock

__all__ = ["Lookout"]


class Lookout:
    """The sights of the shards."""

    def __init__(self, session: Session, clock: ServerClock) -> None:
        self._session, self._clock, self._sights = session, clock, Sights()

    def sights(self, shards: Sequence[Shard], now: int) -> list[Sight]:
        """Return the sights of the shards, of a second ago at most."""
        known = [self._sights.of(shard) for shard in shards]
        old = [
            shard for shard, sight in zip(shards, known, strict=True) if sight is None or sight.is_old(now)
        ]
        found = floors.read(self._session, old) if old else {}
        return [
            sight
            if sight is not None and not sight.is_old(now)
            else self._sights.see(shard, found.get(shard, NOWHERE), now)
            for shard, sight in zip(shards, known, strict=True)
        ]

    def checked_sights(self, shards: Sequence[Shard], now: int) -> list[Sight]:
        """Return the sights of the shards, from before nothing that came late."""
        found = floors.read(self._session, shards)
        return [self._checked(shard, found.get(shard, NOWHERE), now) for shard in shards]

    def afresh(self, shard: Shard, now: int) -> Sight:
        """Return a sight of the shard that begins at the floors."""
        found = floors.read(self._session, [shard])
        return self._sights.see(shard, found.get(shard, NOWHERE), now)

    def _checked(self, shard: Shard, found: Floors, now: int) -> Sight:
        sight = self._sights.of(shard)
        if sight is None or sight.is_old(now) or sight.floors.late != found.late:
            return self._sights.see(shard, found, now)
        return sight

    def moved(self, shard: Shard, sight: Sight, now: int) -> None:
        """The sight has moved on: tell the others when that spares them something."""
        if (raised := sight.raised(now)) is not None:
            floors.raise_to(self._session, shard, raised)
            sight.floors = raised

    def stored(self, shard: Shard, bundles: Iterable[Bundle]) -> None:
        """Bundles can be seen from now on; say so where that is late."""
        moments: dict[int, int] = {}
        for bundle in bundles:
            moments[bundle.priority] = min(bundle.due, moments.get(bundle.priority, bundle.due))
        self.due_again(shard, moments)

    def due_again(self, shard: Shard, moments: Mapping[int, int]) -> None:
        """Bundles of these priorities are due from these moments on; say so where that is late."""
        last = self._clock.now() - LATE
        late = {priority: moment for priority, moment in moments.items() if moment < last}
        if late:
            self.lower(shard, late)

    def put_off(self, shard: Shard, until: int) -> None:
        """Bundles of the shard are due at that moment from now on; say so where that is late."""
        self.due_again(shard, dict.fromkeys(PRIORITIES, until))

    def lower(self, shard: Shard, moments: Mapping[int, int]) -> None:
        """Let everybody read again from these moments on, by priority."""
        floors.lower(self._session, shard, moments)
        self.forget(shard)

    def forget(self, shard: Shard) -> None:
        """Read from the floors again."""
        self._sights.forget([shard])
