"""What this client knows of a shard: up to where it has been consumed, so that reads keep off the tombstones."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from shardq.storage.cassandra.rows import Control, Ready

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
    floors: tuple[int, ...] = (0,) * 11

    def rescan(self, control: Control, taken: bytes | None, now: int) -> None:
        """Begin at the floors again."""
        self.taken = taken
        self.places = [(floor, b"", 0) for floor in control.floors[:10]]
        self.alarm_at = control.floors[10]
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
        places = [place[0] for place in self.places]
        floors = tuple(
            max(floor, min(place, now - guard))
            for floor, place, guard in zip(
                control.floors, [*places, self.alarm_at], [*[GUARD] * 10, _ALARM_GUARD], strict=True
            )
        )
        if all(new < old + _RAISE for new, old in zip(floors, control.floors, strict=True)):
            return control
        return Control(floors, control.late)

    def _advance(self, priority: int, place: Place) -> None:
        self.places[priority] = max(self.places[priority], place)


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
