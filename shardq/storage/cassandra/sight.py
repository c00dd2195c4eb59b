"""What this client knows of a shard: up to where it has been consumed, so that reads keep off the tombstones."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from shardq.storage.cassandra import floors
from shardq.storage.cassandra.rows import ALARM_FLOOR, Control, Place, Ready
from shardq.storage.per_process import OwnLock

__all__ = ["OVERLAP", "Sight", "Sights"]

OVERLAP = 1_000_000
"""No cursor is closer to the present, in microseconds: what is stored later after its due time says that it is late."""

_RESCAN = 1_000_000  # until everything above the floors is read again
_MOST = 4096  # shards that are remembered
_LONG_AGO = -(2**62)


class Sight(msgspec.Struct):
    """Where to read from, by priority. Nothing is stored below, but for what comes late."""

    places: list[Place]
    scanned_at: int = _LONG_AGO
    alarm_at: int = 0
    late: int = 0
    taken: bytes | None = None  # the control row's, from before anything else was read
    page: int = 32
    floors: tuple[Place, ...] = Control().places
    quiet_at: int = 0  # a full look at this moment found nothing ready
    passed: int = 0  # rows that this client took since it raised the floors

    def rescan(self, control: Control, taken: bytes | None, now: int) -> None:
        """Begin at the floors again."""
        control = floors.believed(control, now)
        self.taken = taken
        self.floors = control.places
        self.places = list(self.floors)
        self.alarm_at = control.floors[ALARM_FLOOR]
        self.scanned_at = now
        self.late = control.late

    def is_old(self, now: int) -> bool:
        """Tell whether the whole shard has to be read again."""
        return not self.scanned_at <= now < self.scanned_at + _RESCAN

    def forget(self) -> None:
        """Read the whole shard again before the next claim."""
        self.scanned_at = _LONG_AGO

    def groups(self) -> dict[Place, list[int]]:
        """Return the priorities that are read from one place."""
        groups: dict[Place, list[int]] = {}
        for priority, place in enumerate(self.places):
            groups.setdefault(place, []).append(priority)
        return groups

    def starts(self) -> tuple[Place, ...]:
        """Return by priority where to glance from: nothing is ready before, but for what came late."""
        quiet = (self.quiet_at - OVERLAP, b"", 0)
        return tuple(max(place, floor, quiet) for place, floor in zip(self.places, self.floors, strict=True))

    def places_after(self, taken: Sequence[Ready], done: int, now: int) -> list[Place]:
        """Where to go on when these are taken, in order, and nothing is left of the priorities before ``done``."""
        latest = (now - OVERLAP, b"", 0)
        places = [max(place, latest) for place in self.places[:done]] + self.places[done:]
        for part in taken:
            place = (part.key.due, part.key.id, part.key.first + part.count)
            places[part.key.priority] = max(places[part.key.priority], min(place, latest))
        return places

    def consumed(self, places: list[Place], rows: int) -> None:
        """Go on from these places: so many rows were taken."""
        self.places = places
        self.passed += rows

    def pass_alarms(self, first: int, now: int) -> None:
        """No holding was due before this moment."""
        self.alarm_at = max(self.alarm_at, min(first, now - OVERLAP))

    def raised(self, control: Control, places: Sequence[Place], rows: int, now: int) -> Control | None:
        """Return the control row with floors that follow to these places; None when that is not worth a write."""
        return floors.raised(control, places, self.alarm_at, now, self.passed + rows)

    def begin_anew(self, places: tuple[Place, ...]) -> None:
        """Something was found where this client did not read: nothing is sure but that these are the floors."""
        self.floors = places
        self.places = list(places)
        self.quiet_at = 0
        self.forget()


class Sights:
    """The sights of the shards that this client reads; the oldest are forgotten."""

    def __init__(self) -> None:
        self._lock = OwnLock()
        self._sights: dict[str, Sight] = {}

    def of(self, shard: str) -> Sight:
        """Return the sight of a shard. It may be used while this client has its turn in the shard."""
        sight = self._sights.get(shard)
        if sight is None:
            with self._lock:
                while len(self._sights) >= _MOST:
                    self._sights.pop(next(iter(self._sights)))
                sight = self._sights.setdefault(shard, Sight(list(Control().places)))
        return sight
