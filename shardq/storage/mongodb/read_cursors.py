"""The beginning of reads in a shard, so that they do not cross consumed messages: low watermarks and read cursors.

A replica set keeps the index entries of consumed messages for five minutes, and reads from the beginning cross them.
So claims and probes read from the places up to which this client has consumed: its read cursors. Once a second, and
before a shard is called empty, they read from the low watermarks, which all clients share. These are moments before
which nothing is due. Those are kept in the shard directory, raised by clients that consume and lowered by late ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias

import msgspec
from pymongo import WriteConcern

from shardq.base.shard import Shard
from shardq.errors import ShardqError
from shardq.storage import read_cursors
from shardq.storage.clocks import ServerClock
from shardq.storage.mongodb import directory
from shardq.storage.mongodb.documents import DUE, PRIORITY, WATERMARKS, Document
from shardq.storage.mongodb.session import Session
from shardq.storage.read_cursors import OLDEST, OVERLAP, PRIORITIES, CursorMap
from shardq.storage.requests import Bundle

__all__ = [
    "GUARD",
    "LATE",
    "LISTED",
    "LowWatermarks",
    "ReadCursor",
    "ReadCursors",
    "decode",
    "listed",
    "lower",
    "raise_to",
    "read",
]

CursorPosition: TypeAlias = tuple[int, bytes]  # due, bundle id

GUARD = 2_500_000
"""Low watermarks stay so far behind, in microseconds."""

LATE = OVERLAP // 2
"""A bundle is seen so soon after it is due, or its writer announces that it is late.

The clocks of two clients, and of two primaries, agree within the rest.
"""

LISTED = "listed"

_RAISE = 1_000_000  # low watermarks are raised in such steps
_UNACKNOWLEDGED = WriteConcern(w=0)


class LowWatermarks(msgspec.Struct, frozen=True):
    """By priority, the moment before which nothing is due; and what changes when something came late.

    They are not stored where the directory does not list the shard: then there are none to raise.
    """

    moments: tuple[int, ...] = (OLDEST,) * len(PRIORITIES)
    late: bytes | None = None
    stored: bool = True


NOT_LISTED = LowWatermarks(stored=False)


def read(session: Session, shards: Sequence[Shard]) -> dict[Shard, LowWatermarks]:
    """Return the low watermarks of the shards; none for those that are not listed."""
    with session.translated(writing=False):
        return decode(session.read({"find": directory.SHARDS, "filter": _among(shards)}))


def listed(shards: Sequence[Shard]) -> Document:
    """Return the stage that adds those rows of the directory, each as the one field LISTED."""
    stages = [{"$match": _among(shards)}, {"$project": {"_id": 0, LISTED: "$$ROOT"}}]
    return {"$unionWith": {"coll": directory.SHARDS, "pipeline": stages}}


def decode(found: Iterable[Document]) -> dict[Shard, LowWatermarks]:
    """Return the low watermarks by rows of the directory."""
    return {directory.shard_of(each): _decode(each) for each in found}


def _among(shards: Sequence[Shard]) -> Document:
    return {"_id": {"$in": [directory.key(shard) for shard in shards]}}


def raise_to(session: Session, shard: Shard, watermarks: LowWatermarks) -> None:
    """Raise the low watermarks unless something came late since they were read. The write is not awaited."""
    unchanged = {"_id": directory.key(shard), "late": watermarks.late}
    moments = {f"{WATERMARKS}.{priority}": moment for priority, moment in enumerate(watermarks.moments)}
    with session.translated(writing=True):
        shards = session.collection(directory.SHARDS).with_options(write_concern=_UNACKNOWLEDGED)
        shards.update_one(unchanged, {"$max": moments})


def lower(session: Session, shard: Shard, moments: Mapping[int, int]) -> None:
    """Lower the low watermarks of some priorities, so that what came late is found."""
    lowered = {
        f"{WATERMARKS}.{priority}": _lower_of(priority, moment) for priority, moment in moments.items()
    }
    change: Document = {"$set": lowered | {"late": os.urandom(8)}}
    with session.translated(writing=True):
        session.collection(directory.SHARDS).update_one({"_id": directory.key(shard)}, [change])


def _lower_of(priority: int, moment: int) -> Document:
    return {"$min": [{"$ifNull": [f"${WATERMARKS}.{priority}", OLDEST]}, {"$literal": moment}]}


def _decode(found: Document) -> LowWatermarks:
    moments: Document = found.get(WATERMARKS, {})
    return LowWatermarks(
        tuple(int(moments.get(str(priority), OLDEST)) for priority in PRIORITIES), found.get("late")
    )


class ReadCursor(read_cursors.ReadCursor[CursorPosition]):
    """Where this client reads on in a shard, since it read the low watermarks."""

    watermarks: LowWatermarks = LowWatermarks()
    busy_until: int = OLDEST  # the last end of a lease that this client knows of

    @classmethod
    def at(cls, watermarks: LowWatermarks, now: int, busy_until: int = OLDEST) -> ReadCursor:
        """Begin at the low watermarks."""
        return cls([(moment, b"") for moment in watermarks.moments], now, watermarks, busy_until)

    def renewed(self, now: int) -> ReadCursor:
        """Return it, or if it is old one that begins at the same low watermarks."""
        return ReadCursor.at(self.watermarks, now, self.busy_until) if self.is_old(now) else self

    def due(self, now: int, start: tuple[int, int, bytes] | None = None) -> list[Document]:
        """Return filters for messages that are due and not known to be consumed; from a priority, due time and id on.

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
        done = len(PRIORITIES) if last is None else last[0]
        reached = [] if last is None else [(last[0], last[1:])]
        self.places = self.places_beyond(done, reached, (now - OVERLAP, b""))
        self.busy_until = max(self.busy_until, until)

    def raised(self, now: int) -> LowWatermarks | None:
        """Return low watermarks that follow the places.

        None while raising them spares no reads, or where none are stored.
        """
        known = self.watermarks.moments
        if not self.watermarks.stored or now - GUARD < min(known) + _RAISE:
            return None
        moments = tuple(
            [
                max(moment, min(place[0], now - GUARD))
                for moment, place in zip(known, self.places, strict=True)
            ]
        )
        steps = [new - old for new, old in zip(moments, known, strict=True)]
        if max(steps) < _RAISE or min(known) > self.busy_until:
            return None
        return LowWatermarks(moments, self.watermarks.late)


def _groups(places: Sequence[CursorPosition], first: int) -> Iterator[tuple[int, int, CursorPosition]]:
    """Return neighbouring priorities that are read from one place: first, last, place."""
    for priority in PRIORITIES[first:]:
        if priority + 1 == len(PRIORITIES) or places[priority + 1] != places[first]:
            yield first, priority, places[first]
            first = priority + 1


def _ranges(first: int, last: int, place: CursorPosition, now: int) -> Iterator[Document]:
    due, bundle_id = place
    priorities: int | Document = first if first == last else {"$gte": first, "$lte": last}
    if bundle_id and due <= now:
        yield {PRIORITY: priorities, DUE: due, "_id": {"$gte": bundle_id}}
    yield {PRIORITY: priorities, DUE: {"$gt" if bundle_id else "$gte": due, "$lte": now}}


class ReadCursors:
    """The read cursors of this client, and its notices to others about them."""

    def __init__(self, session: Session, clock: ServerClock) -> None:
        self._session, self._clock = session, clock
        self._cursors = CursorMap[Shard, ReadCursor]()

    def of(self, shards: Sequence[Shard], now: int) -> list[ReadCursor]:
        """Return the cursors of the shards. Each began at the low watermarks a second ago at most."""
        known = {shard: cursor for shard in shards if (cursor := self._fresh(shard, now)) is not None}
        old = [shard for shard in shards if shard not in known]
        found = read(self._session, old) if old else {}
        return [known.get(shard) or self._begin(shard, found.get(shard), now) for shard in shards]

    def checked(self, shards: Sequence[Shard], now: int) -> list[ReadCursor]:
        """Return the cursors of the shards. Those of shards where something came late begin at the low watermarks."""
        found = read(self._session, shards)
        return [self._checked(shard, found.get(shard), now) for shard in shards]

    def remembered(self, shards: Sequence[Shard], now: int) -> list[ReadCursor]:
        """Return the cursors of the shards as this client remembers them; none at all unless it does of each.

        One that is old begins at the low watermarks that this client saw last. Nothing that is read by them counts
        until it is confirmed.
        """
        known = [cursor for shard in shards if (cursor := self._cursors.get(shard)) is not None]
        return [each.renewed(now) for each in known] if len(known) == len(shards) else []

    def confirm(
        self, shards: Sequence[Shard], cursors: Sequence[ReadCursor], rows: Mapping[Shard, LowWatermarks]
    ) -> bool:
        """Continue with these cursors, unless something came late in one of the shards.

        The low watermarks were read after all that was read by the cursors.
        """
        found = [rows.get(shard, NOT_LISTED) for shard in shards]
        if any(each.late != cursor.watermarks.late for each, cursor in zip(found, cursors, strict=True)):
            return False
        for shard, cursor, each in zip(shards, cursors, found, strict=True):
            cursor.watermarks = each
            if self._cursors.get(shard) is not cursor:
                self._cursors.replace(shard, cursor)
        return True

    def afresh(self, shard: Shard, now: int) -> ReadCursor:
        """Return a cursor of the shard that begins at the low watermarks."""
        return self._begin(shard, read(self._session, [shard]).get(shard), now)

    def moved(self, shard: Shard, cursor: ReadCursor, now: int) -> None:
        """Raise the low watermarks, as the cursor has moved on, when that spares others something.

        Where they cannot be raised others read more: what was taken is taken all the same.
        """
        if (raised := cursor.raised(now)) is not None:
            with suppress(ShardqError):
                raise_to(self._session, shard, raised)
                cursor.watermarks = raised

    def stored(self, shard: Shard, bundles: Iterable[Bundle]) -> None:
        """Announce late bundles that can be seen from now on."""
        moments: dict[int, int] = {}
        for bundle in bundles:
            moments[bundle.priority] = min(bundle.due, moments.get(bundle.priority, bundle.due))
        self.due_again(shard, moments)

    def due_again(self, shard: Shard, moments: Mapping[int, int]) -> None:
        """Announce bundles of these priorities that are due from these moments on, where that is late.

        Where this fails they are found by the next deep probe, and the writes stay.
        """
        with suppress(ShardqError):
            last = self._clock.now() - LATE
            late = {priority: moment for priority, moment in moments.items() if moment < last}
            if late:
                self.lower(shard, late)

    def put_off(self, shard: Shard, until: int) -> None:
        """Announce that bundles of the shard are due at that moment from now on, where that is late."""
        self.due_again(shard, dict.fromkeys(PRIORITIES, until))

    def lower(self, shard: Shard, moments: Mapping[int, int]) -> None:
        """Let every client read again from these moments on, by priority."""
        lower(self._session, shard, moments)
        self.forget(shard)

    def forget(self, shard: Shard) -> None:
        """Read from the low watermarks again."""
        self._cursors.forget(shard)

    def _fresh(self, shard: Shard, now: int) -> ReadCursor | None:
        cursor = self._cursors.get(shard)
        return None if cursor is None or cursor.is_old(now) else cursor

    def _checked(self, shard: Shard, found: LowWatermarks | None, now: int) -> ReadCursor:
        cursor = self._fresh(shard, now)
        late = (found or NOT_LISTED).late
        return cursor if cursor and cursor.watermarks.late == late else self._begin(shard, found, now)

    def _begin(self, shard: Shard, found: LowWatermarks | None, now: int) -> ReadCursor:
        known = self._cursors.get(shard)
        cursor = ReadCursor.at(found or NOT_LISTED, now, known.busy_until if known else OLDEST)
        self._cursors.replace(shard, cursor)
        return cursor
