"""Reading a range of rows whatever tombstones are in it.

A server gives a read up that crosses too many tombstones before its page is full (100,000 by default). Then the range
is cut into parts, which are read one after the other, and cut again where that is not enough. The cuts are by
priority, by due time, by id, by position. So every range can be read; crossed tombstones cost time, not the answer.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

from shardq.storage.cassandra.faults import TombstonesRefused
from shardq.storage.cassandra.session import Answer, Session

__all__ = ["FIRST", "FOREVER", "Position", "after", "guarded", "scan"]

# Priority, due, id, first: where a row is among those of its kind.
Position: TypeAlias = tuple[int, int, bytes, int]

FOREVER = 2**62
FIRST = -(2**31)  # no row has a lower position
_PARTS = 16  # a part without tombstones costs next to nothing, one with too many a whole refused read
_ID_BYTES = 16
_DUE_BITS, _ID_BITS, _FIRST_BITS = 64, 8 * _ID_BYTES, 32
_WIDE = 86_400_000_000 << _ID_BITS + _FIRST_BITS  # a day: such a range is cut near the present first
_HOUR = 3_600_000_000
_AROUND_NOW = (-8760, -720, -24, -6, -3, -2, -1, 0, 1, 24, 8760)  # hours
CQL_RANGE = (
    "WHERE shard = ? AND kind = ? AND (priority, due, id, first) >= (?, ?, ?, ?) "
    "AND (priority, due, id, first) < (?, ?, ?, ?)"
)


def scan(
    session: Session,
    shard: str,
    kind: int,
    start: Position,
    end: Position,
    *,
    columns: str = "",
    page: int | None = None,
) -> Iterator[tuple[Any, ...]]:
    """Read the rows of a kind between two positions, the second not included, in order.

    A row is priority, due, id and first, then the columns that are named. Without the first of these there is no row.
    """
    chosen = f"priority, due, id, first{', ' if columns else ''}{columns}"
    query = f"SELECT {chosen} FROM entry {CQL_RANGE}"
    at = start
    try:
        for row in session.start_read(query, (shard, kind, *start, *end), page=page)():
            at = after(row[:4])
            if _is_whole(row):
                yield row
    except TombstonesRefused:
        parts = _parts(at, end)
        if (at, end) in parts:
            raise
        for low, high in parts:
            yield from scan(session, shard, kind, low, high, columns=columns, page=page)


def guarded(
    session: Session,
    shard: str,
    kind: int,
    answer: Answer,
    ranges: Sequence[tuple[Position, Position]],
    *,
    columns: str = "",
    page: int | None = None,
) -> Iterator[tuple[Any, ...]]:
    """Return the rows of a query for some ranges, in their order; when it is refused, those of scans from there on.

    The query's rows are as those of :func:`scan`.
    """
    last: tuple[Any, ...] | None = None
    try:
        for last in answer():
            if _is_whole(last):
                yield last
    except TombstonesRefused:
        at = None if last is None else after(last[:4])
        for start, end in ranges:
            low = start if at is None else max(start, at)
            if low < end:
                yield from scan(session, shard, kind, low, end, columns=columns, page=page)


def _is_whole(row: Sequence[Any]) -> bool:
    """Return False for a row without the value that was asked for: the replicas that answered have only a part of it.

    A read of bodies that finds the row of a lease on one replica repairs no more than these on another that lags.
    """
    return len(row) == 4 or row[4] is not None


def after(position: Sequence[Any]) -> Position:
    """Return the first position after this one."""
    priority, due, row_id, first = position
    return priority, due, row_id, first + 1


def _parts(start: Position, end: Position) -> list[tuple[Position, Position]]:
    low, high = _number(start), _number(end)
    # Parts are cut at the same places as parts of parts, or cutting would never end.
    hour = time.time_ns() // 1000 // _HOUR * _HOUR
    near = [_number((start[0], hour + hours * _HOUR, b"", FIRST)) for hours in _AROUND_NOW]
    numbers = [each for each in near if low < each < high and high - low > _WIDE]
    if not numbers:
        numbers = [low + (high - low) * part // _PARTS for part in range(1, _PARTS)]
    cuts = [start, *map(_position, dict.fromkeys(each for each in numbers if low < each < high)), end]
    return list(pairwise(cuts))


def _number(position: Position) -> int:
    priority, due, row_id, first = position
    value = (priority << _DUE_BITS) + due + (1 << _DUE_BITS - 1)
    value = (value << _ID_BITS) + int.from_bytes(row_id[:_ID_BYTES].ljust(_ID_BYTES, b"\0"), "big")
    return (value << _FIRST_BITS) + first + (1 << _FIRST_BITS - 1)


def _position(number: int) -> Position:
    number, first = divmod(number, 1 << _FIRST_BITS)
    number, row_id = divmod(number, 1 << _ID_BITS)
    priority, due = divmod(number, 1 << _DUE_BITS)
    return (
        priority,
        due - (1 << _DUE_BITS - 1),
        row_id.to_bytes(_ID_BYTES, "big"),
        first - (1 << _FIRST_BITS - 1),
    )
