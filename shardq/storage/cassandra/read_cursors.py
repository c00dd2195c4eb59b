"""The floors of a shard: low watermarks in its control row, from which everybody reads.

They are hints. A floor is raised with what was taken, to 5 s ago at most (that of the alarms: 60 s), and nobody
believes one that is higher, whatever clock has written it. What lies below a floor all the same is found by a deep
look, which lowers it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from shardq.storage.cassandra.rows import ALARM_FLOOR, HISTORY_FLOOR, Control, ControlRow, Place, Ready
from shardq.storage.per_process import OwnLock

__all__ = [
    "GUARD",
    "OVERLAP",
    "Sight",
    "Sights",
    "believed",
    "lowered",
    "raised",
    "with_history_floor",
    "worth_raising",
]

GUARD = 5_000_000
"""A floor is so long before the present, in microseconds: what is stored later after its due time says so."""

_ALARM_GUARD = 60_000_000  # far above the time that a conditional batch may be on its way
_STEP = 5_000_000  # floors are raised in such steps
_ROWS = 500  # or when so many rows were taken

OVERLAP = 1_000_000
"""No cursor is closer to the present, in microseconds: what is stored later after its due time says that it is late."""

_RESCAN = 1_000_000  # until everything above the floors is read again
_MOST = 4096  # shards that are remembered
_LONG_AGO = -(2**62)


def believed(control: Control, now: int) -> Control:
    """Return the control row with floors that a right clock can have raised until now."""
    places = [min(place, (now - GUARD, b"", 0)) for place in control.places]
    return _with(control, places, min(control.floors[ALARM_FLOOR], now - _ALARM_GUARD))


def raised(control: Control, places: Sequence[Place], alarm: int, now: int, taken: int = 0) -> Control | None:
    """Raise the floors to these places; None where that is not worth a write.

    It is worth one when a floor rises by a step, or ``taken`` rows became tombstones that it passes.
    """
    known = believed(control, now)
    higher = [max(pair) for pair in zip(known.places, places, strict=True)]
    after = believed(_with(control, higher, max(known.floors[ALARM_FLOOR], alarm)), now)
    stepped = any(new >= old + _STEP for new, old in zip(after.floors, known.floors, strict=True))
    return after if stepped or (taken >= _ROWS and after.places > known.places) else None


def worth_raising(row: ControlRow, first_alarm: int, now: int) -> Control | None:
    """Return the control row to write for a shard that has nothing ready, or None when that spares nobody anything.

    It spares reading tombstones where something was taken after the moments of the floors.
    """
    floors = row.control.floors
    ready = min(floors[:ALARM_FLOOR]) <= row.taken_at < now - GUARD
    alarms = floors[ALARM_FLOOR] <= row.taken_at < now - _ALARM_GUARD
    if not row.taken_at or not (ready or alarms):
        return None
    return raised(row.control, [(now, b"", 0)] * ALARM_FLOOR, first_alarm, now)


def lowered(control: Control, hidden: Mapping[int, Place], alarm: int | None = None) -> Control:
    """Lower the floors to these places by priority, and to this alarm, and let every client begin there again."""
    places = [min(place, hidden.get(priority, place)) for priority, place in enumerate(control.places)]
    floor = control.floors[ALARM_FLOOR]
    after = _with(control, places, floor if alarm is None else min(floor, alarm))
    return msgspec.structs.replace(after, late=control.late + 1)


def with_history_floor(control: Control, floor: int) -> Control:
    """Return the control row with the history's floor raised to a moment."""
    floors = list(control.floors)
    floors[HISTORY_FLOOR] = max(floors[HISTORY_FLOOR], floor)
    return msgspec.structs.replace(control, floors=tuple(floors))


def _with(control: Control, places: Sequence[Place], alarm: int) -> Control:
    floors = (*(place[0] for place in places), alarm, *control.floors[HISTORY_FLOOR:])
    return Control(floors, control.late, tuple(place[1:] for place in places))


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
        control = believed(control, now)
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
        return raised(control, places, self.alarm_at, now, self.passed + rows)

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
