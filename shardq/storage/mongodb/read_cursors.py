"""What this client knows of a shard: up to where it has been consumed.

A replica set keeps the index entries of what was consumed for five minutes, and who reads from the beginning crosses
them. So claims and probes read from the places up to which this client has consumed; once a second, and before a
shard is called empty, from the shard's floors, which all clients share: moments before which nothing is due.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import msgspec
from pymongo import WriteConcern

from shardq.sharding.shard import Shard
from shardq.storage.clocks import ServerClock
from shardq.storage.mongodb import directory
from shardq.storage.mongodb.documents import Document
from shardq.storage.mongodb.session import Session
from shardq.storage.requests import Bundle

__all__ = [
    "GUARD",
    "LATE",
    "NOWHERE",
    "OLDEST",
    "Floors",
    "Lookout",
    "Sight",
    "Sights",
    "lower",
    "raise_to",
    "read",
]

Place: TypeAlias = tuple[int, bytes]  # due, bundle id

GUARD = 2_500_000
"""Floors stay so far behind, in microseconds."""

LATE = 500_000
"""A bundle is seen so soon after it is due, or whoever wrote it says that it is late."""

OLDEST = -(2**62)
PRIORITIES = range(10)
_OVERLAP = (
    2 * LATE
)  # places stay so far behind; the clocks of two clients, and of two primaries, agree within the half
_RESCAN = 1_000_000  # until everything above the floors is read again
_RAISE = 1_000_000  # floors are raised in such steps
_MOST = 4096  # shards that are remembered

_UNACKNOWLEDGED = WriteConcern(w=0)


class Floors(msgspec.Struct, frozen=True):
    """By priority, the moment before which nothing is due; and what changes when something came late.

    They are not stored where the directory does not list the shard: then there are none to raise.
    """

    moments: tuple[int, ...] = (OLDEST,) * len(PRIORITIES)
    late: bytes | None = None
    stored: bool = True


NOWHERE = Floors(stored=False)


class Sight(msgspec.Struct):
    """Where to read from, by priority, since the floors were read."""

    floors: Floors
    scanned_at: int
    places: list[Place]
    busy_until: int = OLDEST  # the last end of a lease that this client knows of

    def is_old(self, now: int) -> bool:
        """Tell whether the floors have to be read again."""
        return not self.scanned_at <= now < self.scanned_at + _RESCAN

    def due(self, now: int, start: tuple[int, int, bytes] | None = None) -> list[Document]:
        """Return filters for what is due and not known to be consumed; from a priority, due time and id on.

        Each is for one range of the claim index, and the ranges follow each other.
        """
        places, first = list(self.places), 0
        if start is not None:
            first = start[0]
            places[first] = max(places[first], start[1:])
        groups = _groups(places, first)
        return [each for group in groups for each in _ranges(*group, now)]

    def consumed(self, last: tuple[int, int, bytes] | None, now: int, until: int) -> None:
        """Move on to the bundle of this priority, due time and id; None: to the end, nothing more was due."""
        end = (now - _OVERLAP, b"")
        for priority in PRIORITIES if last is None else range(last[0]):
            self.places[priority] = max(self.places[priority], end)
        if last is not None:
            self.places[last[0]] = max(self.places[last[0]], min(last[1:], end))
        self.busy_until = max(self.busy_until, until)

    def raised(self, now: int) -> Floors | None:
        """Return floors that follow the places; None while that spares nobody anything, or where none are stored."""
        if not self.floors.stored:
            return None
        moments = tuple(
            max(floor, min(place[0], now - GUARD))
            for floor, place in zip(self.floors.moments, self.places, strict=True)
        )
        steps = [new - old for new, old in zip(moments, self.floors.moments, strict=True)]
        if max(steps) < _RAISE or min(self.floors.moments) > self.busy_until:
            return None
        return Floors(moments, self.floors.late)


class Sights:
    """The sights of the shards that this client reads; the oldest are forgotten. Without a lock: see ``see``."""

    def __init__(self) -> None:
        self._sights: dict[Shard, Sight] = {}

    def of(self, shard: Shard) -> Sight | None:
        """Return what is known of the shard."""
        return self._sights.get(shard)

    def see(self, shard: Shard, floors: Floors, now: int) -> Sight:
        """Begin at the floors. Whoever still reads by the sight before moves that one on, to no effect."""
        while len(self._sights) >= _MOST:
            self._sights.pop(next(iter(self._sights)), None)
        known = self._sights.pop(shard, None)
        sight = Sight(floors, now, [(floor, b"") for floor in floors.moments])
        sight.busy_until = known.busy_until if known else OLDEST
        self._sights[shard] = sight
        return sight

    def forget(self, shards: Iterable[Shard]) -> None:
        """Something came late there."""
        for shard in shards:
            self._sights.pop(shard, None)


def _groups(places: Sequence[Place], first: int) -> Iterator[tuple[int, int, Place]]:
    """Return neighbouring priorities that are read from one place: first, last, place."""
    for priority in PRIORITIES[first:]:
        if priority + 1 == len(PRIORITIES) or places[priority + 1] != places[first]:
            yield first, priority, places[first]
            first = priority + 1


def _ranges(first: int, last: int, place: Place, now: int) -> Iterator[Document]:
    due, bundle_id = place
    priorities: int | Document = first if first == last else {"$gte": first, "$lte": last}
    if bundle_id and due <= now:
        yield {"p": priorities, "d": due, "_id": {"$gte": bundle_id}}
    yield {"p": priorities, "d": {"$gt" if bundle_id else "$gte": due, "$lte": now}}


def read(session: Session, shards: Sequence[Shard]) -> dict[Shard, Floors]:
    """Return the floors of the shards; none for those that are not listed."""
    keys = {"_id": {"$in": [directory.key(shard) for shard in shards]}}
    with session.translated(writing=False):
        found = list(session.collection(directory.SHARDS).find(keys))
    return {directory.shard_of(each): _decode(each) for each in found}


def raise_to(session: Session, shard: Shard, floors: Floors) -> None:
    """Raise the floors unless something came late since they were read. Nobody waits for it."""
    unchanged = {"_id": directory.key(shard), "late": floors.late}
    moments = {f"f.{priority}": moment for priority, moment in enumerate(floors.moments)}
    with session.translated(writing=True):
        shards = session.collection(directory.SHARDS).with_options(write_concern=_UNACKNOWLEDGED)
        shards.update_one(unchanged, {"$max": moments})


def lower(session: Session, shard: Shard, moments: Mapping[int, int]) -> None:
    """Lower the floors of some priorities, so that what came late is found."""
    lowered = {f"f.{priority}": _lower_of(priority, moment) for priority, moment in moments.items()}
    change: Document = {"$set": lowered | {"late": os.urandom(8)}}
    with session.translated(writing=True):
        session.collection(directory.SHARDS).update_one({"_id": directory.key(shard)}, [change])


def _lower_of(priority: int, moment: int) -> Document:
    return {"$min": [{"$ifNull": [f"$f.{priority}", OLDEST]}, {"$literal": moment}]}


def _decode(found: Document) -> Floors:
    moments: Document = found.get("f", {})
    return Floors(
        tuple(int(moments.get(str(priority), OLDEST)) for priority in PRIORITIES), found.get("late")
    )


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
        found = read(self._session, old) if old else {}
        return [
            sight
            if sight is not None and not sight.is_old(now)
            else self._sights.see(shard, found.get(shard, NOWHERE), now)
            for shard, sight in zip(shards, known, strict=True)
        ]

    def checked_sights(self, shards: Sequence[Shard], now: int) -> list[Sight]:
        """Return the sights of the shards, from before nothing that came late."""
        found = read(self._session, shards)
        return [self._checked(shard, found.get(shard, NOWHERE), now) for shard in shards]

    def afresh(self, shard: Shard, now: int) -> Sight:
        """Return a sight of the shard that begins at the floors."""
        found = read(self._session, [shard])
        return self._sights.see(shard, found.get(shard, NOWHERE), now)

    def _checked(self, shard: Shard, found: Floors, now: int) -> Sight:
        sight = self._sights.of(shard)
        if sight is None or sight.is_old(now) or sight.floors.late != found.late:
            return self._sights.see(shard, found, now)
        return sight

    def moved(self, shard: Shard, sight: Sight, now: int) -> None:
        """The sight has moved on: tell the others when that spares them something."""
        if (raised := sight.raised(now)) is not None:
            raise_to(self._session, shard, raised)
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
        lower(self._session, shard, moments)
        self.forget(shard)

    def forget(self, shard: Shard) -> None:
        """Read from the floors again."""
        self._sights.forget([shard])
