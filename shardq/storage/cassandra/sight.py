"""What this client knows of a shard: up to where it has been consumed, so that reads keep off the tombstones."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from shardq.storage.cassandra.rows import ALARM_FLOOR, Control, ControlRow, Ready

__all__ = ["GUARD", "Place", "Sight", "Sights"]

Place: TypeAlias = tuple[int, bytes, int]  # due, bundle id, position

GUARD = 5_000_000
"""An append is seen so soon after its due time, in microseconds, or it says that it is late."""

_ALARM_GUARD = 60_000_000  # far above the time that a conditional batch may be on its way
_OVERLAP = 1_000_000  # reads begin so long ago where nothing was found
_RESCAN = 1_000_000  # until everything above the floors is read again
_RAISE = 5_000_000  # floors are raised in such steps
_MOST = 4096  # shards that are remembered


class Sight(msgspec.Struct):
    """Where to read from, by priority. Nothing is stored below, but for what comes late."""

    places: list[Place]
    scanned_at: int = -(2**62)
    alarm_at: int = 0
    late: int = 0
    taken: bytes | None = None  # the control row's, from before anything else was read
    page: int = 32
    floors: tuple[int, ...] = Control().floors
    quiet_at: int = 0  # a full look at this moment found nothing ready

    def rescan(self, control: Control, taken: bytes | None, now: int) -> None:
        """Begin at the floors again."""
        self.taken = taken
        self.places = [(floor, b"", 0) for floor in control.floors[:10]]
        self.alarm_at = control.floors[ALARM_FLOOR]
        self.scanned_at = now
        self.late = control.late
        self.floors = control.floors

    def is_old(self, now: int) -> bool:
        """Tell whether the whole shard has to be read again."""
        return not self.scanned_at <= now < self.scanned_at + _RESCAN

    def groups(self) -> dict[Place, list[int]]:
        """Return the priorities that are read from one place."""
        groups: dict[Place, list[int]] = {}
        for priority, place in enumerate(self.places):
            groups.setdefault(place, []).append(priority)
        return groups

    def starts(self) -> tuple[int, ...]:
        """Return by priority where to glance from: nothing is ready before, but for what came late."""
        quiet = self.quiet_at - _OVERLAP
        return tuple(
            max(place[0], floor, quiet) for place, floor in zip(self.places, self.floors[:10], strict=True)
        )

    def consumed(self, taken: Sequence[Ready], done: int, now: int) -> None:
        """Move on: these were taken, in order, and nothing is left of the priorities before ``done``."""
        for priority in range(done):
            self._advance(priority, (now - _OVERLAP, b"", 0))
        for part in taken:
            self._advance(part.key.priority, (part.key.due, part.key.id, part.key.first + part.count))

    def quiet(self, now: int) -> None:
        """No holding was due."""
        self.alarm_at = max(self.alarm_at, now - _OVERLAP)

    def raised(self, control: Control, now: int) -> Control:
        """Return the control row with floors that follow; the same one when that is not worth a write."""
        return _raised(control, [place[0] for place in self.places], self.alarm_at, now) or control

    def _advance(self, priority: int, place: Place) -> None:
        self.places[priority] = max(self.places[priority], place)


def worth_raising(row: ControlRow, first_alarm: int, now: int) -> Control | None:
    """Return the control row to write for a shard that has nothing ready, or None when that spares nobody anything.

    It spares reading tombstones where something was taken after the moments of the floors.
    """
    floors = row.control.floors
    ready = min(floors[:ALARM_FLOOR]) <= row.taken_at < now - GUARD
    alarms = floors[ALARM_FLOOR] <= row.taken_at < now - _ALARM_GUARD
    return _raised(row.control, [now] * 10, first_alarm, now) if row.taken_at and (ready or alarms) else None


def _raised(control: Control, places: Sequence[int], alarm: int, now: int) -> Control | None:
    """Raise the floors to these places, as far as nothing can be under way to below them; None for less than a step."""
    guards = [*[GUARD] * 10, _ALARM_GUARD]
    floors = (
        tuple(
            max(floor, min(place, now - guard))
            for floor, place, guard in zip(control.floors, [*places, alarm], guards, strict=False)
        )
        + control.floors[len(guards) :]
    )
    if all(new < old + _RAISE for new, old in zip(floors, control.floors, strict=True)):
        return None
    return Control(floors, control.late)


class Sights:
    """The sights of the shards that this client reads; the oldest are forgotten."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sights: dict[str, Sight] = {}

    def of(self, shard: str) -> Sight:
        """Return the sight of a shard. It may be used while this client has its turn in the shard."""
        sight = self._sights.get(shard)
        if sight is None:
            with self._lock:
                while len(self._sights) >= _MOST:
                    self._sights.pop(next(iter(self._sights)))
                sight = self._sights.setdefault(shard, Sight([(0, b"", 0)] * 10))
        return sight
