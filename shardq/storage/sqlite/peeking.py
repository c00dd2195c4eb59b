"""Looking at slices without claiming them, and counting them."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterable
from typing import Any, TypeAlias

import msgspec

from shardq.errors import InvalidCursor
from shardq.sharding.shard import Shard
from shardq.storage.requests import Bundle, EntryState, Peek, PeekPage, ShardCounts, StoredSlice
from shardq.storage.sqlite import directory

__all__ = ["count", "find", "peek"]

_Place: TypeAlias = tuple[int | bytes, ...]


class _View(msgspec.Struct, frozen=True):
    """The entries or the history: statements that begin with the columns of :class:`_Row`."""

    page: str  # the rows after a place, each with its place at the end
    containing: str  # the row that may hold a message
    cursor: struct.Struct  # how a place is packed
    start: _Place  # before all places


class _Row(msgspec.Struct, frozen=True):
    bundle_key: int
    first: int
    count: int
    deliveries: int
    due: int
    held: int | None  # None in the history
    place: _Place = ()


_ENTRIES = _View(
    page="""
        SELECT bundle_key, first, count, deliveries, due, token IS NOT NULL, priority, due, bundle_id, first
        FROM entry WHERE shard_key = ? AND (priority, due, bundle_id, first) > (?, ?, ?, ?)
        ORDER BY priority, due, bundle_id, first
    """,
    containing="""
        SELECT bundle_key, first, count, deliveries, due, token IS NOT NULL
        FROM entry WHERE bundle_id = ? AND shard_key = ? AND first <= ? ORDER BY first DESC LIMIT 1
    """,
    cursor=struct.Struct(">qq16sq"),
    start=(-1, -1, b"", -1),
)
_HISTORY = _View(
    page="""
        SELECT bundle_key, first, count, deliveries, processed_at, NULL, processed_at, history_key
        FROM history WHERE shard_key = ? AND (processed_at, history_key) > (?, ?)
        AND processed_at >= ? AND processed_at < ? ORDER BY processed_at, history_key
    """,
    containing="""
        SELECT bundle_key, first, count, deliveries, processed_at, NULL
        FROM history WHERE bundle_key = (SELECT bundle_key FROM bundle WHERE bundle_id = ? AND shard_key = ?)
        AND first <= ? ORDER BY first DESC LIMIT 1
    """,
    cursor=struct.Struct(">qq"),
    start=(-1, -1),
)
_HEAD = "SELECT bundle_id, priority, due, enqueued_at, count, x'' FROM bundle WHERE bundle_key = ?"
_BUNDLE = "SELECT bundle_id, priority, due, enqueued_at, count, data FROM bundle WHERE bundle_key = ?"
_COUNT = """
    SELECT
        coalesce(sum(count) FILTER (WHERE due <= ?2), 0),
        coalesce(sum(count) FILTER (WHERE due > ?2 AND token IS NULL), 0),
        coalesce(sum(count) FILTER (WHERE due > ?2 AND token IS NOT NULL), 0),
        (SELECT coalesce(sum(count), 0) FROM history WHERE shard_key = ?1),
        min(enqueued_at),
        min(due) FILTER (WHERE due <= ?2)
    FROM entry WHERE shard_key = ?1
"""


def peek(sql: sqlite3.Connection, request: Peek, now: int) -> PeekPage:
    """Return a page of the shard's entries in the order of delivery, or of its history in that of processing.

    The cursor is the place of the page's last slice, so that what comes and goes meanwhile shifts nothing.
    """
    view = _HISTORY if request.processed else _ENTRIES
    period = (request.since, request.until) if request.processed else ()
    place = _unpack(view, request.after)
    cursor = sql.execute(view.page, (directory.key_of(sql, request.shard), *place, *period))
    rows, more = _up_to(cursor, request.limit)
    cursor.close()
    slices = tuple(_slice(sql, row, now, _BUNDLE if request.bodies else _HEAD) for row in rows)
    return PeekPage(slices, view.cursor.pack(*rows[-1].place) if more else b"")


def find(
    sql: sqlite3.Connection, shard: Shard, bundle_id: bytes, position: int, now: int
) -> StoredSlice | None:
    """Return the slice that holds this message, in the history too, or None."""
    place = (bundle_id, directory.key_of(sql, shard), position)
    for view in (_ENTRIES, _HISTORY):
        row = next((_row(values) for values in sql.execute(view.containing, place)), None)
        if row and row.first + row.count > position:
            return _slice(sql, row, now)
    return None


def count(sql: sqlite3.Connection, shard: Shard, now: int) -> ShardCounts:
    """Messages by state. The cost grows with the number of entries, not of messages or bytes."""
    key = directory.key_of(sql, shard)
    return ShardCounts(*sql.execute(_COUNT, (key, now)).fetchone())


def _up_to(cursor: Iterable[tuple[Any, ...]], limit: int) -> tuple[list[_Row], bool]:
    """Return rows until they hold ``limit`` messages, and whether there are more of them."""
    rows: list[_Row] = []
    for values in cursor:
        if limit <= 0:
            return rows, True
        rows.append(_row(values))
        limit -= rows[-1].count
    return rows, False


def _row(values: tuple[Any, ...]) -> _Row:
    bundle_key, first, count, deliveries, due, held, *place = values
    return _Row(bundle_key, first, count, deliveries, due, held, tuple(place))


def _slice(sql: sqlite3.Connection, row: _Row, now: int, statement: str = _BUNDLE) -> StoredSlice:
    bundle = Bundle(*sql.execute(statement, (row.bundle_key,)).fetchone())
    return StoredSlice(bundle, row.first, row.count, row.deliveries, _state(row, now), row.due)


def _state(row: _Row, now: int) -> EntryState:
    if row.held is None:
        return EntryState.PROCESSED
    if row.due <= now:
        return EntryState.READY
    return EntryState.IN_FLIGHT if row.held else EntryState.DELAYED


def _unpack(view: _View, cursor: bytes) -> _Place:
    if not cursor:
        return view.start
    if len(cursor) != view.cursor.size:
        raise InvalidCursor(f"peek cursor {cursor!r} is not from a page of this kind: start without one")
    return view.cursor.unpack(cursor)
