"""Looking at slices without claiming them, and counting them."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import msgspec

from shardq.base.shard import Shard
from shardq.errors import InvalidCursor
from shardq.storage.read_cursors import PRIORITIES
from shardq.storage.requests import Bundle, EntryState, Peek, PeekPage, ShardCounts, StoredSlice
from shardq.storage.sqlite import directory
from shardq.storage.sqlite.bundles import BEHIND, DATA, HOLDER

__all__ = ["count", "find_many", "peek"]

_Position: TypeAlias = tuple[int | bytes | str, ...]
_Row: TypeAlias = tuple[Any, ...]
_PLACE = 15  # columns of a row before its place


class _View(msgspec.Struct, frozen=True):
    """The pending and held slices, or the history: the rows after a place, each with its place at the end."""

    bodies: str
    heads: str  # the same rows without their data
    cursor: struct.Struct  # how a place is packed
    start: _Position  # before all places
    ends_in_text: bool = False  # of any length, behind what is packed

    def pack(self, place: _Position) -> bytes:
        """Return the cursor of a place."""
        if self.ends_in_text:
            return self.cursor.pack(*place[:-1]) + str(place[-1]).encode()
        return self.cursor.pack(*place)

    def unpack(self, cursor: bytes) -> _Position:
        """Return the place of a cursor; raises ValueError when it is of another kind of page."""
        packed, text = cursor[: self.cursor.size], cursor[self.cursor.size :]
        if len(packed) < self.cursor.size or bool(text) != self.ends_in_text:
            raise ValueError("another length")
        place: _Position = self.cursor.unpack(packed)
        return (*place, text.decode()) if self.ends_in_text else place


def _view(statement: str, cursor: str, start: _Position, *, ends_in_text: bool = False) -> _View:
    return _View(
        statement.format(_WITH_DATA),
        statement.format(_WITHOUT_DATA),
        struct.Struct(cursor),
        start,
        ends_in_text,
    )


_DUE = f"iif(due >= {BEHIND}, due - {BEHIND}, due)"
_COLUMNS = f"""
    first, count, deliveries, processed_at, {_DUE}, {HOLDER}, unstarted,
    bundle_id, priority, sent_due, enqueued_at, sent_count,
"""
_REST = "expires_at, message_group"
_WITH_DATA, _WITHOUT_DATA = f"{_COLUMNS} {DATA}, {_REST}", f"{_COLUMNS} x'', {_REST}"
SQL_WAITING = _view(
    """
        SELECT {}, priority, due, bundle_id, first FROM [slice] INDEXED BY [slice_by_due]
        WHERE shard_key = ? AND (priority, due, bundle_id, first) > (?, ?, ?, ?) AND processed_at IS NULL
        ORDER BY priority, due, bundle_id, first
    """,
    cursor=">qq16sq",
    start=(-1, -1, b"", -1),
)
_DUE_THEN = _view(
    f"""
        SELECT {{}}, priority, due, bundle_id, first FROM [slice] INDEXED BY [slice_by_due]
        WHERE shard_key = ? AND (+priority, due, bundle_id, first) > (?, ?, ?, ?)
        AND priority IN ({", ".join(map(str, PRIORITIES))}) AND due >= ? AND due < ? AND processed_at IS NULL
        ORDER BY priority, due, bundle_id, first
    """,
    cursor=">qq16sq",
    start=(-1, -1, b"", -1),
)
_HELD = _view(
    f"""
        SELECT {{}}, priority, due, bundle_id, first FROM [slice] INDEXED BY [slice_by_token]
        WHERE shard_key = ? AND (priority, due, bundle_id, first) > (?, ?, ?, ?) AND token IS NOT NULL AND {_DUE} > ?
        ORDER BY priority, due, bundle_id, first
    """,
    cursor=">qq16sq",
    start=(-1, -1, b"", -1),
)
# Group after group, each in its order.
_GROUPED = _view(
    """
        SELECT {}, place, message_group FROM [slice] INDEXED BY [slice_by_group]
        WHERE shard_key = ?1 AND (message_group, place) > (?3, ?2) AND message_group <> '' AND processed_at IS NULL
        ORDER BY message_group, place
    """,
    cursor=">q",
    start=(-1, ""),
    ends_in_text=True,
)
_HISTORY = _view(
    """
        SELECT {}, processed_at, slice_key FROM [slice] INDEXED BY [slice_by_moment]
        WHERE shard_key = ? AND (processed_at, slice_key) > (?, ?) AND processed_at >= ? AND processed_at < ?
        ORDER BY processed_at, slice_key
    """,
    cursor=">qq",
    start=(-1, -1),
)
_CONTAINING = f"""
    SELECT {_WITH_DATA} FROM [slice] WHERE bundle_id = ? AND shard_key = ? AND first <= ? ORDER BY first DESC LIMIT 1
"""
# Counted from the index alone, but for held messages.
SQL_COUNT = f"""
    SELECT
        coalesce(sum(count) FILTER (WHERE {_DUE} <= ?2), 0), coalesce(sum(count) FILTER (WHERE {_DUE} > ?2), 0),
        (
            SELECT coalesce(sum(count), 0) FROM [slice] INDEXED BY [slice_by_token]
            WHERE shard_key = ?1 AND token IS NOT NULL AND {_DUE} > ?2
        ),
        (
            SELECT coalesce(sum(count), 0) FROM [slice] INDEXED BY [slice_by_moment]
            WHERE shard_key = ?1 AND processed_at IS NOT NULL
        ),
        min(enqueued_at),
        min(due) FILTER (WHERE due <= ?2)
    FROM [slice] INDEXED BY [slice_by_due] WHERE shard_key = ?1 AND processed_at IS NULL
"""


_LENGTH = """
    coalesce(
        length(data), (SELECT length(data) FROM [bundle_data] WHERE [bundle_data].data_key = [slice].data_key)
    )
"""
_SIZES = f"""
    SELECT coalesce(sum({_LENGTH} * count / sent_count), 0) FROM [slice] INDEXED BY [slice_by_due]
    WHERE shard_key = ?1 AND processed_at IS NULL AND (token IS NULL OR {_DUE} <= ?2)
"""


def peek(sql: sqlite3.Connection, request: Peek, now: int) -> PeekPage:
    """Return a page of the shard's slices in the order of delivery, or of its history in that of processing.

    The cursor is the place of the page's last slice, so that changes meanwhile shift nothing.
    """
    view = _view_of(request)
    period = (
        (request.since, request.until) if view in (_HISTORY, _DUE_THEN) else (now,) if request.held else ()
    )
    place = _unpack(view, request.after)
    statement = view.bodies if request.bodies else view.heads
    cursor = sql.execute(statement, (directory.key_of(sql, request.shard), *place, *period))
    rows, more = _up_to(cursor, request.limit)
    cursor.close()
    slices = tuple(_slice(row, now) for row in rows)
    return PeekPage(slices, view.pack(rows[-1][_PLACE:]) if more else b"")


def _view_of(request: Peek) -> _View:
    if request.processed:
        return _HISTORY
    if request.held:
        return _HELD
    if request.of_period:
        return _DUE_THEN
    return _GROUPED if request.shard.is_grouped else SQL_WAITING


def find_many(
    sql: sqlite3.Connection, shard: Shard, places: Sequence[tuple[bytes, int]], now: int
) -> tuple[StoredSlice | None, ...]:
    """Return the slices that hold these messages, in the history too, or None."""
    return tuple(_find(sql, shard, bundle_id, position, now) for bundle_id, position in places)


def _find(
    sql: sqlite3.Connection, shard: Shard, bundle_id: bytes, position: int, now: int
) -> StoredSlice | None:
    row = sql.execute(_CONTAINING, (bundle_id, directory.key_of(sql, shard), position)).fetchone()
    found = _slice(row, now) if row else None
    return found if found and found.first + found.count > position else None


def count(sql: sqlite3.Connection, shard: Shard, now: int, *, sizes: bool) -> ShardCounts:
    """Count messages by state. The cost grows with the number of slices, not of messages or bytes.

    With ``sizes`` the rows are read too; the length of data that is stored beside them is known without reading it.
    """
    key = directory.key_of(sql, shard)
    ready, later, held, processed, *since = sql.execute(SQL_COUNT, (key, now)).fetchone()
    size = sql.execute(_SIZES, (key, now)).fetchone()[0] if sizes else None
    oldest, ready_since = since
    return ShardCounts(ready, later - held, held, processed, oldest, ready_since, size)


def _up_to(cursor: Iterable[_Row], limit: int) -> tuple[list[_Row], bool]:
    """Return rows until they hold ``limit`` messages, and whether there are more of them."""
    rows: list[_Row] = []
    for row in cursor:
        if limit <= 0:
            return rows, True
        rows.append(row)
        limit -= row[1]
    return rows, False


def _slice(row: _Row, now: int) -> StoredSlice:
    first, count, deliveries, processed_at, due, token, unstarted, *bundle = row[:_PLACE]
    stored = Bundle(*bundle)
    if processed_at is not None:
        return StoredSlice(stored, first, count, deliveries, EntryState.PROCESSED, processed_at)
    if token is not None and due > now:
        return StoredSlice(
            stored, first, count, deliveries, EntryState.IN_FLIGHT, due, token, started=not unstarted
        )
    return StoredSlice(
        stored, first, count, deliveries, EntryState.READY if due <= now else EntryState.DELAYED, due
    )


def _unpack(view: _View, cursor: bytes) -> _Position:
    if not cursor:
        return view.start
    try:
        return view.unpack(cursor)
    except ValueError as error:
        raise InvalidCursor(
            f"peek cursor {cursor!r} is not from a page of this kind: start without one"
        ) from error
