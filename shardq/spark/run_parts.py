"""A part of a run, and which of its messages may share a bundle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from zlib import crc32

import msgspec

from shardq.base.outgoing_message import DEFAULT_PRIORITY, Headers, stored_group
from shardq.core.sending.planned_bundles import lane_of_key

__all__ = ["Common", "RunPart", "commons_of"]


class RunPart(msgspec.Struct, frozen=True):
    """Messages that are sent together, in the order in which every attempt has them.

    A column is None or as long as the bodies. A message has a delay or a due time, and one kind of key, at most.
    """

    name: str  # the same in every attempt
    fingerprint: str  # of who the messages are, with all that decides on bundles; the same in every attempt
    turn: int  # the shard of the first bundle; the next one goes to the shard after it
    bodies: Sequence[bytes]
    headers: Sequence[Headers | None] | None = None
    priorities: Sequence[int] | None = None  # 0 .. 9
    dues: Sequence[int | None] | None = None  # microseconds; None and the past mean now
    lanes: Sequence[int] | None = None  # messages of one lane go to the same concurrency shard
    delays: Sequence[int | None] | None = None  # microseconds from when the part is sent first
    ttls: Sequence[int | None] | None = None  # microseconds from the due time
    groups: Sequence[str | None] | None = None
    dedupe_keys: Sequence[str | None] | None = None
    unique_keys: Sequence[str | None] | None = None

    @property
    def is_plain(self) -> bool:
        """True when its messages have nothing that keeps them out of one bundle."""
        columns = (
            self.priorities, self.dues, self.lanes, self.delays, self.ttls, self.groups, self.dedupe_keys,
            self.unique_keys,
        )  # fmt: skip
        return all(column is None for column in columns)


class Common(msgspec.Struct, frozen=True):
    """What messages of a part that may share a bundle have in common, and where in the part they are."""

    priority: int
    due: int
    lane: int | None
    places: Sequence[int]
    ttl: int | None = None
    group: str = ""  # as it is stored; "": none


def commons_of(part: RunPart, moment: int, *, shards: int | None, group_lanes: int) -> list[Common]:
    """Cut a part that is sent at a moment into what may share bundles; in the order of their first messages.

    With ``shards``, lanes of one shard share bundles. The messages of a group are cut wherever they differ, so that
    their order stays. Messages with a key stay alone.
    """
    everything = range(len(part.bodies))
    if part.is_plain:
        return [Common(DEFAULT_PRIORITY, moment, None, everything)] if part.bodies else []
    marks = _marks(part, group_lanes)
    found: dict[tuple[int, int, int | None, int | None, str, object], list[int]] = {}
    for place in everything:
        priority = DEFAULT_PRIORITY if part.priorities is None else part.priorities[place]
        due = _due(part, place, moment)
        ttl = None if part.ttls is None else part.ttls[place]
        lane = None if part.lanes is None else part.lanes[place]
        if lane is not None and shards is not None:
            lane %= shards
        group, mark = ("", None) if marks is None else marks.of(place, (priority, due, ttl))
        found.setdefault((priority, due, ttl, lane, group, mark), []).append(place)
    return [
        Common(priority, due, lane, places, ttl, group)
        for (priority, due, ttl, lane, group, _), places in found.items()
    ]


def _due(part: RunPart, place: int, moment: int) -> int:
    delay = None if part.delays is None else part.delays[place]
    if delay:
        return moment + delay
    return max(moment, (part.dues[place] if part.dues is not None else None) or moment)


def _marks(part: RunPart, group_lanes: int) -> _Marks | None:
    if part.groups is None and part.dedupe_keys is None and part.unique_keys is None:
        return None
    return _Marks(part, group_lanes)


class _Marks:
    """Tells messages apart that may not share a bundle though they are alike."""

    def __init__(self, part: RunPart, group_lanes: int) -> None:
        self._groups = list(_in_lanes(part, group_lanes))
        self._keys = [_key(part, place) for place in range(len(part.bodies))]
        self._last: dict[str, object] = {}  # what the last message of a group was like; None: it had a key
        self._ended = Counter[str]()  # bundles of a group that nothing more may join

    def of(self, place: int, options: object) -> tuple[str, object]:
        """The group of a message, and its mark: messages with the same options, group and mark may share a bundle."""
        group, is_alone = self._groups[place], self._keys[place] is not None
        if not group:
            return group, place if is_alone else None
        if is_alone or self._last.get(group) != options:
            self._ended[group] += 1
        self._last[group] = None if is_alone else options
        return group, self._ended[group]


def _key(part: RunPart, place: int) -> str | None:
    for keys in (part.unique_keys, part.dedupe_keys):
        if keys is not None and keys[place] is not None:
            return keys[place]
    return None


def _in_lanes(part: RunPart, lanes: int) -> Iterator[str]:
    """The groups as they are stored: messages of a group take its lanes in turn, and one with a key has its own.

    Depends on the part only, where :func:`shardq.core.sending.planned_bundles.in_lanes` goes by what was sent before.
    """
    turns = Counter[str]()
    for place in range(len(part.bodies)):
        group = part.groups[place] if part.groups is not None else None
        if not group or lanes == 1:
            yield group or ""
            continue
        if key := _key(part, place):
            yield stored_group(group, lane_of_key(key, lanes))
            continue
        first = crc32(f"{part.name} {group}".encode())
        yield stored_group(group, (first + turns[group]) % lanes)
        turns[group] += 1
