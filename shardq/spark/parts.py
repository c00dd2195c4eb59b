"""The parts in which a task sends its rows, the same in every attempt, and which messages may share a bundle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any
from zlib import crc32

import msgspec
import numpy as np
import pyarrow as pa

from shardq.base.outgoing_message import DEFAULT_PRIORITY, Headers, stored_group
from shardq.core.sending.planned_bundles import lane_of_key
from shardq.spark.columns import NOTHING, Columns, Rows, headers_of, names_of
from shardq.spark.options import SendOptions
from shardq.spark.roles import numbers_of, with_different_ids
from shardq.spark.spool import Spool, full_length

__all__ = ["Common", "PartCutter", "RunPart", "commons_of"]

BUNDLES_TO_A_PART = 32  # about; from a part's first bundle to the next one's
_MAX_BUNDLES = 1 << 20


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
    is_last: bool | None = None  # of its partition; None: not known

    @property
    def is_plain(self) -> bool:
        """True when its messages have nothing that keeps them out of one bundle."""
        columns = (
            self.priorities, self.dues, self.lanes, self.delays, self.ttls, self.groups, self.dedupe_keys,
            self.unique_keys,
        )  # fmt: skip
        return all(column is None for column in columns)


class Common(msgspec.Struct, frozen=True):
    """The common options of messages of a part that may share a bundle, and their places in the part."""

    priority: int
    due: int
    lane: int | None
    places: Sequence[int]
    ttl: int | None = None
    group: str = ""  # as it is stored; "": none


def commons_of(part: RunPart, moment: int, *, shards: int | None, group_lanes: int) -> list[Common]:
    """Group the messages of a part that may share bundles; in the order of their first messages.

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
    """Distinguishes messages that may not share a bundle though they are alike."""

    def __init__(self, part: RunPart, group_lanes: int) -> None:
        self._groups = list(_in_lanes(part, group_lanes))
        self._keys = [_key(part, place) for place in range(len(part.bodies))]
        self._last: dict[str, object] = {}  # what the last message of a group was like; None: it had a key
        self._ended = Counter[str]()  # bundles of a group that nothing more may join

    def of(self, place: int, options: object) -> tuple[str, object]:
        """Return the group and the mark of a message.

        Messages with the same options, group and mark may share a bundle.
        """
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
    """Yield the groups as they are stored: messages of a group take its lanes in turn, and one with a key has its own.

    Depends on the part only, where :func:`shardq.core.sending.planned_bundles.in_lanes` depends on earlier sends.
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


class PartCutter:
    """An iterator over the parts of a partition. The first shard to write is ``start`` plus the partition's number.

    Rows with an id may have other sizes in a later attempt, which then cuts each part as the first attempt did.
    """

    def __init__(
        self,
        batches: Iterable[pa.RecordBatch],
        columns: Columns,
        options: SendOptions,
        *,
        partition: int,
        start: int,
    ) -> None:
        rows = (columns.rows(one) for one in with_different_ids(batches, columns.id) if one.num_rows)
        self._more = rows if options.input_order == "stable" else _sorted(rows)
        # The rows from the current part on; None: there are no more.
        self._waiting: Any = next(self._more, None)
        self._partition, self._start = partition, start
        self._number = self._cut = 0  # the number and the length of the current part

    def __iter__(self) -> PartCutter:
        return self

    def __next__(self) -> RunPart:
        if self._cut:
            rest = self._waiting.pick(slice(self._cut, None))
            self._waiting = rest if len(rest) else None
            self._number += 1
        if self._waiting is None:
            raise StopIteration
        return self._part(self._waiting, None)

    def again(self, count: int) -> RunPart:
        """Cut the current part again, with this number of rows, or with all if fewer are left."""
        return self._part(self._waiting, count)

    def _part(self, rows: Rows, count: int | None) -> RunPart:
        while True:
            end = full_length(_sizes(rows)) if count is None else count
            more = next(self._more, None) if end >= len(rows) else None
            if more is None:
                break
            rows = Rows.joined([rows, more])
        self._waiting, self._cut = rows, min(end, len(rows))
        return _part(
            rows.pick(slice(0, self._cut)),
            f"{self._partition}-{self._number}",
            (self._start + self._partition + self._number * BUNDLES_TO_A_PART) % _MAX_BUNDLES,
            is_last=self._cut == len(rows),
        )


def _sorted(rows: Iterable[Rows]) -> Iterator[Rows]:
    with Spool() as spool:
        for some in rows:
            spool.add(some)
        yield from spool.rows()


def _sizes(rows: Rows) -> Any:
    return np.fromiter(map(len, rows.bodies), dtype=np.int64, count=len(rows))


def _part(rows: Rows, name: str, turn: int, *, is_last: bool) -> RunPart:
    names = [] if rows.names is None else [names_of(packed) for packed in rows.names]
    return RunPart(
        name=name,
        fingerprint=_fingerprint(rows),
        turn=turn,
        bodies=rows.bodies.tolist(),
        headers=None if rows.headers is None else [headers_of(packed) for packed in rows.headers],
        priorities=None if rows.priorities is None else rows.priorities.tolist(),
        dues=_numbers(rows.dues),
        lanes=None if rows.lanes is None else rows.lanes.tolist(),
        delays=_numbers(rows.delays),
        ttls=_numbers(rows.ttls),
        groups=_texts([one.group for one in names]),
        dedupe_keys=_texts([one.dedupe_key for one in names]),
        unique_keys=_texts([one.unique_key for one in names]),
        is_last=is_last,
    )


def _numbers(column: Any) -> list[int | None] | None:
    return None if column is None else [None if one == NOTHING else one for one in column.tolist()]


def _texts(column: list[str | None]) -> list[str | None] | None:
    return column if any(one is not None for one in column) else None


def _fingerprint(rows: Rows) -> str:
    """Digest the identities of the rows, and the options that decide which of them share a bundle."""
    names = None if rows.names is None else numbers_of(rows.names)
    digest = blake2b(digest_size=16)
    for column in (rows.identities, rows.priorities, rows.dues, rows.lanes):
        digest.update(b"" if column is None else column.tobytes())
    for role, column in (("delay", rows.delays), ("ttl", rows.ttls), ("names", names)):
        if column is not None:  # seconds of one role are not those of another
            digest.update(role.encode() + column.tobytes())
    return digest.hexdigest()
