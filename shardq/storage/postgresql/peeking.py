"""Looking at slices without claiming them, and counting them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from shardq.base.shard import Shard
from shardq.errors import InvalidCursor
from shardq.storage.postgresql.connections import Id, Row, Sql
from shardq.storage.postgresql.directory import row_keys_of
from shardq.storage.postgresql.rows import DUE, HOLDER
from shardq.storage.requests import Bundle, EntryState, Peek, PeekPage, ShardCounts, StoredSlice

__all__ = ["count", "find_many", "peek"]

_Position: TypeAlias = tuple[int | bytes, ...]
_MORE, _PLACE = 15, 16  # columns of a row before what tells whether others follow, and before its place


class _View(msgspec.Struct, frozen=True):
    """The pending and held slices, or the history: the rows after a place, each with its place at the end."""

    bodies: str
    heads: str  # the same rows without their data
    cursor: struct.Struct  # how a place is packed
    start: _Position  # before all places
    ends_in_group: bool = False  # of any length, behind what is packed

    def pack(self, place: Sequence[int | bytes]) -> bytes:
        """Return the cursor of a place."""
        if self.ends_in_group:
            return self.cursor.pack(*place[:-1]) + bytes(place[-1])
        return self.cursor.pack(*place)

    def unpack(self, cursor: bytes) -> _Position:
        """Return the place of a cursor, as values; raises ValueError when it is of another kind of page."""
        if not cursor:
            return self.start
        packed, group = cursor[: self.cursor.size], cursor[self.cursor.size :]
        if len(packed) < self.cursor.size or bool(group) != self.ends_in_group:
            raise ValueError("another length")
        place = tuple(Id(each) if isinstance(each, bytes) else each for each in self.cursor.unpack(packed))
        return (*place, group) if self.ends_in_group else place


def _columns(data: str) -> str:
    return f"""
        s.first, s.count, s.deliveries, s.processed_at, {DUE} AS due_at, {HOLDER} AS holder, s.unstarted, s.bundle_id,
        s.priority, s.sent_due, s.enqueued_at, s.sent_count, {data} AS data, s.expires_at,
        s.message_group AS group_name
    """


def _view(
    place: Sequence[str], rows: str, cursor: str, start: _Position, *, ends_in_group: bool = False
) -> _View:
    """Return a view of rows whose columns are to stand for ``{}``. The second value of the statement is the limit.

    Rows come until they hold the limit of messages; the data of long bundles is read of these alone.
    """
    at = ", ".join(f"{column} AS at_{number}" for number, column in enumerate(place))
    places = ", ".join(f"x.at_{number}" for number in range(len(place)))

    def statement(own: str, data: str) -> str:
        return f"""
            SELECT
                x.first, x.count, x.deliveries, x.processed_at, x.due_at, x.holder, x.unstarted, x.bundle_id,
                x.priority, x.sent_due, x.enqueued_at, x.sent_count, {data}, x.expires_at, x.group_name, x.more,
                {places}
            FROM (
                SELECT y.*, sum(y.count) OVER (ROWS UNBOUNDED PRECEDING) - y.count AS before,
                    lead(true) OVER (ROWS UNBOUNDED PRECEDING) IS NOT NULL AS more
                FROM ({rows.format(f"{_columns(own)}, {at}")}) AS y
            ) AS x WHERE x.before < $2
        """

    data = """coalesce(
        x.data, (SELECT d.data FROM @bundle_data d WHERE d.shard_key = $1 AND d.bundle_id = x.bundle_id), ''::bytea
    )"""
    bodies, heads = statement("s.data", data), statement("''::bytea", "x.data")
    return _View(bodies, heads, struct.Struct(cursor), start, ends_in_group)


_OF_ALL = ("s.priority", "s.due", "s.bundle_id", "s.first")
_FIRST: _Position = (-1, -1, Id(bytes(16)), -1)
_AFTER = "(s.priority, s.due, s.bundle_id, s.first) > ($3::smallint, $4::bigint, $5::uuid, $6::int)"
_WAITING = _view(
    _OF_ALL,
    f"""
        SELECT {{}} FROM @slice s WHERE s.shard_key = $1 AND {_AFTER} AND s.processed_at IS NULL
        ORDER BY s.priority, s.due, s.bundle_id, s.first LIMIT $2 + 1
    """,
    cursor=">qq16sq",
    start=_FIRST,
)
_DUE_THEN = _view(
    _OF_ALL,
    f"""
        SELECT z.* FROM generate_series(0, 9) AS p (priority) CROSS JOIN LATERAL (
            SELECT {{}} FROM @slice s
            WHERE s.shard_key = $1 AND s.priority = p.priority AND s.processed_at IS NULL AND {_AFTER}
            AND s.due >= CASE WHEN p.priority = $3 THEN greatest($7::bigint, $4) ELSE $7 END AND s.due < $8
            ORDER BY s.due, s.bundle_id, s.first LIMIT $2 + 1
        ) AS z WHERE p.priority >= $3 ORDER BY z.at_0, z.at_1, z.at_2, z.at_3 LIMIT $2 + 1
    """,
    cursor=">qq16sq",
    start=_FIRST,
)
_HELD = _view(
    _OF_ALL,
    f"""
        SELECT {{}} FROM @slice s WHERE s.shard_key = $1 AND {_AFTER} AND s.token IS NOT NULL AND {DUE} > $7
        ORDER BY s.priority, s.due, s.bundle_id, s.first LIMIT $2 + 1
    """,
    cursor=">qq16sq",
    start=_FIRST,
)
# Group after group, each in its order.
_GROUPED = _view(
    ("s.place", "s.message_group"),
    """
        SELECT {} FROM @slice s
        WHERE s.shard_key = $1 AND (s.message_group, s.place) > ($4::bytea, $3::bigint) AND s.message_group <> ''
        AND s.processed_at IS NULL
        ORDER BY s.message_group, s.place LIMIT $2 + 1
    """,
    cursor=">q",
    start=(-1, b""),
    ends_in_group=True,
)
_HISTORY = _view(
    ("s.processed_at", "s.bundle_id", "s.first"),
    """
        SELECT {} FROM @slice s
        WHERE s.shard_key = $1 AND (s.processed_at, s.bundle_id, s.first) > ($3::bigint, $4::uuid, $5::int)
        AND s.processed_at >= $6 AND s.processed_at < $7
        ORDER BY s.processed_at, s.bundle_id, s.first LIMIT $2 + 1
    """,
    cursor=">q16sq",
    start=(-1, Id(bytes(16)), -1),
)
_CONTAINING = f"""
    SELECT x.* FROM unnest($2::uuid[], $3::int[]) WITH ORDINALITY AS a (bundle_id, position, n) LEFT JOIN LATERAL (
        SELECT {_columns("coalesce(s.data, d.data, ''::bytea)")} FROM @slice s
        LEFT JOIN @bundle_data d ON d.shard_key = s.shard_key AND d.bundle_id = s.bundle_id
        WHERE s.shard_key = $1 AND s.bundle_id = a.bundle_id AND s.first <= a.position
        ORDER BY s.first DESC LIMIT 1
    ) AS x ON x.first + x.count > a.position
    ORDER BY a.n
"""
# ORDER BY makes the planner use the index of unprocessed slices. A plan made while the history was short would
# otherwise read all of the history.
_PENDING = """
    SELECT {} FROM @slice s WHERE s.shard_key = $1 AND s.processed_at IS NULL ORDER BY s.priority, s.due OFFSET 0
"""
# Counted from the index alone, but for held messages and the history.
_COUNT = f"""
    SELECT
        coalesce(sum(s.count) FILTER (WHERE {DUE} <= $2), 0)::bigint,
        coalesce(sum(s.count) FILTER (WHERE {DUE} > $2), 0)::bigint,
        (
            SELECT coalesce(sum(s.count), 0)::bigint FROM @slice s
            WHERE s.shard_key = $1 AND s.token IS NOT NULL AND {DUE} > $2
        ),
        (
            SELECT coalesce(sum(s.count), 0)::bigint FROM @slice s
            WHERE s.shard_key = $1 AND s.processed_at IS NOT NULL
        ),
        min(s.enqueued_at),
        min(s.due) FILTER (WHERE s.due <= $2)
    FROM ({_PENDING.format("s.count, s.enqueued_at, s.due")}) AS s
"""
_SIZES = f"""
    SELECT coalesce(sum(coalesce(
        octet_length(s.data),
        (SELECT octet_length(d.data) FROM @bundle_data d WHERE d.shard_key = s.shard_key AND d.bundle_id = s.bundle_id),
        0
    )::bigint * s.count / s.sent_count), 0)::bigint
    FROM ({_PENDING.format("s.shard_key, s.bundle_id, s.data, s.count, s.sent_count, s.token, s.due")}) AS s
    WHERE s.token IS NULL OR {DUE} <= $2
"""


def peek(sql: Sql, request: Peek, now: int) -> PeekPage:
    """Return a page of the shard's slices in the order of delivery, or of its history in that of processing.

    The cursor is the place of the page's last slice, so that changes meanwhile shift nothing.
    """
    view = _view_of(request)
    period: tuple[int, ...] = (now,) if request.held else ()
    if view in (_HISTORY, _DUE_THEN):
        period = (request.since, request.until)
    place = _unpack(view, request.after)
    row_keys = row_keys_of(sql, request.shard)
    if row_keys is None:
        return PeekPage((), b"")
    statement = view.bodies if request.bodies else view.heads
    rows = sql.all(statement, row_keys.shard_key, request.limit, *place, *period)
    slices = tuple(_slice(row, now) for row in rows)
    return PeekPage(slices, view.pack(rows[-1][_PLACE:]) if rows and rows[-1][_MORE] else b"")


def _view_of(request: Peek) -> _View:
    if request.processed:
        return _HISTORY
    if request.held:
        return _HELD
    if request.of_period:
        return _DUE_THEN
    return _GROUPED if request.shard.is_grouped else _WAITING


def find_many(
    sql: Sql, shard: Shard, places: Sequence[tuple[bytes, int]], now: int
) -> tuple[StoredSlice | None, ...]:
    """Return the slices that hold these messages, in the history too, or None."""
    row_keys = row_keys_of(sql, shard)
    if row_keys is None or not places:
        return (None,) * len(places)
    ids, positions = zip(*places, strict=True)
    rows = sql.all(_CONTAINING, row_keys.shard_key, [Id(each) for each in ids], list(positions))
    return tuple(None if row[0] is None else _slice(row, now) for row in rows)


def count(sql: Sql, shard: Shard, now: int, sizes: bool) -> ShardCounts:
    """Count messages by state. The cost grows with the number of slices, not of messages or bytes.

    With ``sizes`` the rows are read too; the length of data that is stored beside them is known without reading it.
    """
    row_keys = row_keys_of(sql, shard)
    if row_keys is None:
        return ShardCounts(bytes=0 if sizes else None)
    ((ready, later, held, processed, oldest, since),) = sql.all(_COUNT, row_keys.shard_key, now)
    size = sql.all(_SIZES, row_keys.shard_key, now)[0][0] if sizes else None
    return ShardCounts(ready, later - held, held, processed, oldest, since, size)


def _slice(row: Row, now: int) -> StoredSlice:
    first, number, deliveries, processed_at, due, token, unstarted, *columns = row[:_MORE]
    columns[-1] = columns[-1].decode()
    bundle = Bundle(*columns)
    if processed_at is not None:
        return StoredSlice(bundle, first, number, deliveries, EntryState.PROCESSED, processed_at)
    if token is not None and due > now:
        return StoredSlice(
            bundle, first, number, deliveries, EntryState.IN_FLIGHT, due, token, started=not unstarted
        )
    state = EntryState.READY if due <= now else EntryState.DELAYED
    return StoredSlice(bundle, first, number, deliveries, state, due)


def _unpack(view: _View, cursor: bytes) -> _Position:
    try:
        return view.unpack(cursor)
    except ValueError as error:
        raise InvalidCursor(
            f"peek cursor {cursor!r} is not from a page of this kind: start without one"
        ) from error
