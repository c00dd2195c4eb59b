"""Read cursors on every store that has them: how far one client has consumed a shard.

A read cursor is a hint: it spares reads of consumed messages. It stays behind the present, so that messages which are
stored a little after their due time are still found. Later ones are marked. Once a second a client reads from the low
watermarks again, which all clients share. A deep probe ignores both.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, TypeVar

import msgspec

from shardq.storage.per_process import OwnLock

__all__ = ["OLDEST", "OVERLAP", "PRIORITIES", "CursorMap", "ReadCursor"]

PRIORITIES = tuple(range(10))

OLDEST = -(2**62)
"""Before every moment, in microseconds."""

OVERLAP = 1_000_000
"""No cursor is closer to the present, in microseconds: what is stored later after its due time says that it is late."""

_RESCAN = 1_000_000  # microseconds until everything above the low watermarks is read again
_MOST = 4096  # shards that are remembered

S = TypeVar("S")
C = TypeVar("C")
# Due time, bundle id and whatever else a store orders its messages by.
P = TypeVar("P", bound=tuple[Any, ...])


class ReadCursor(msgspec.Struct, Generic[P]):
    """Where one client reads on in a shard, by priority. Nothing is stored below, but for what comes late."""

    places: list[P]
    scanned_at: int = OLDEST  # when it began at the low watermarks

    def is_old(self, now: int) -> bool:
        """Return whether everything above the low watermarks has to be read again."""
        return not self.scanned_at <= now < self.scanned_at + _RESCAN

    def places_beyond(self, done: int, reached: Iterable[tuple[int, P]], end: P) -> list[P]:
        """Return where to read on, by priority, when nothing is left of those before ``done``.

        In other priorities these places were ``reached``. No place moves back, and none beyond the ``end``.
        """
        places = [max(place, end) for place in self.places[:done]] + self.places[done:]
        for priority, place in reached:
            places[priority] = max(places[priority], min(place, end))
        return places


class CursorMap(Generic[S, C]):
    """The read cursors of the shards that this client reads; the oldest are forgotten."""

    def __init__(self) -> None:
        self._lock = OwnLock()
        self.cursors: dict[S, C] = {}

    def get(self, shard: S) -> C | None:
        """Return the cursor of a shard, if there is one."""
        return self.cursors.get(shard)

    def add(self, shard: S, cursor: C) -> C:
        """Remember the cursor unless the shard has one; return that of the shard."""
        with self._lock.plain:
            self._evict()
            return self.cursors.setdefault(shard, cursor)

    def replace(self, shard: S, cursor: C) -> None:
        """Remember the cursor. Readers that still use the old cursor move that one on, to no effect."""
        with self._lock.plain:
            self.cursors.pop(shard, None)
            self._evict()
            self.cursors[shard] = cursor

    def forget(self, shard: S) -> None:
        """Read the shard from its low watermarks again."""
        with self._lock.plain:
            self.cursors.pop(shard, None)

    def _evict(self) -> None:
        while len(self.cursors) >= _MOST:
            self.cursors.pop(next(iter(self.cursors)))
