"""Reading a shard's wide row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby, islice
from typing import Any, TypeVar

import msgspec

from shardq.storage.cassandra.lease_rows import LeaseRow
from shardq.storage.cassandra.read_cursors import believed
from shardq.storage.cassandra.rows import (
    CONTROL,
    DUE_INDEX,
    DUE_WATERMARK,
    HISTORY,
    HISTORY_WATERMARK,
    LEASE,
    READY,
    SOON,
    BundleRow,
    Control,
    ControlRow,
    CursorPosition,
    Head,
    HistoryRow,
    Key,
    Ready,
    Tally,
    control_row,
    decode_carried,
    decode_head,
    decode_kept,
    decode_move,
    decode_ready,
    decode_tally,
    id_time,
)
from shardq.storage.cassandra.scanning import FIRST, FOREVER, Position, guarded, scan
from shardq.storage.cassandra.session import Answer, Session
from shardq.storage.read_cursors import PRIORITIES
from shardq.storage.slicing import Range

__all__ = ["WideRow"]
T = TypeVar("T")

_PAGE = 1000
_NAMES_AT_ONCE = 50
_READS = 5

CQL_CONTROL_AND_LEASES = (
    "SELECT kind, id, first, value, taken, WRITETIME(taken), turn, WRITETIME(turn) FROM entry "
    "WHERE shard = ? AND kind IN (0, 1) AND priority = 0 AND due = 0 AND id IN ?"
)
CQL_READY = (
    "SELECT priority, due, id, first, value, WRITETIME(value), data FROM entry WHERE shard = ? AND kind = 2 "
    "AND priority IN ? AND (due, id, first) >= (?, ?, ?) AND (due) <= (?)"
)
_READY_COLUMNS = "value, WRITETIME(value), data"
CQL_BARE_READY = CQL_READY.replace(", data FROM", " FROM")
_BARE_COLUMNS = _READY_COLUMNS.replace(", data", "")
CQL_DUE_ROWS = (
    "SELECT priority, due, id, first FROM entry WHERE shard = ? AND kind = 5 AND priority = 0 "
    "AND due >= ? AND due <= ? LIMIT ?"
)
CQL_LEASES = (
    "SELECT id, first, value FROM entry WHERE shard = ? AND kind = 1 AND priority = 0 AND due = 0 AND id IN ?"
)
CQL_CARRIED = "SELECT data FROM entry WHERE shard = ? AND kind = 1 AND priority = 0 AND due = 0 AND id IN ?"
CQL_BUNDLES = (
    "SELECT id, value, tally, data FROM entry "
    "WHERE shard = ? AND kind = 3 AND priority = 0 AND due = 0 AND id IN ?"
)
CQL_HEADS = (
    "SELECT id, value, tally FROM entry WHERE shard = ? AND kind = 3 AND priority = 0 AND due = 0 AND id IN ?"
)
_MOVES = (
    "SELECT id, first, value FROM entry WHERE shard = ? AND kind = 6 AND priority = 0 AND due = 0 AND id IN ?"
)
CQL_HISTORY = (
    "SELECT priority, due, id, first, value FROM entry WHERE shard = ? AND kind = 4 AND priority = 0 "
    "AND (due, id, first) >= (?, ?, ?) AND (due) < (?)"
)


class WideRow:
    """The rows of one shard."""

    def __init__(self, session: Session, shard: str) -> None:
        self._session, self._shard = session, shard

    @property
    def shard(self) -> str:
        """Its name in the tables."""
        return self._shard

    def control(self) -> ControlRow:
        """Read the control row."""
        row: ControlRow = self.start_own(b"")()[0]
        return row

    def settled_control(self) -> ControlRow:
        """Read the control row after every change that has begun; what is read next is no older than this row.

        An ordinary read may see a change on one node, and the next read, of other rows, miss it on the others. Rows
        that are taken on the condition of this row alone have to be read after it, and after this kind of read.
        """
        rows = self._session.read_serial(CQL_CONTROL_AND_LEASES, (self._shard, [b""]))
        return _control_and_leases(lambda: rows)[0]

    def undisturbed(self, read: Callable[[], T]) -> tuple[T, bool]:
        """Read rows that take several reads, until nothing moves meanwhile; False when something did each time.

        Between two reads a claim can move messages from where they are not read yet to where they were not found. So
        only a read counts after which the turn, which every change but an append sets, is the same as before. The turn
        is read after every change that has begun. This is needed because messages that are not found here count as
        gone, or the shard as empty.
        """
        turn_at = self.settled_control().turn_at
        for _ in range(_READS):
            seen, before = read(), turn_at
            turn_at = self.settled_control().turn_at
            if turn_at == before:
                return seen, True
        return seen, False

    def start_own(self, token: bytes) -> Answer:
        """Ask for the control row and the lease rows under a token."""
        query = self._session.start_read(CQL_CONTROL_AND_LEASES, (self._shard, [b"", token]))
        return partial(_control_and_leases, query)

    def ready(
        self,
        priorities: Sequence[int],
        start: CursorPosition,
        until: int,
        *,
        page: int = _PAGE,
        bodies: bool = True,
    ) -> Answer:
        """Ask for ready rows from a place until a moment, in order; they are fetched page by page.

        Without ``bodies`` it does not show which of them are inline.
        """
        rows = self.start_ready(priorities, start, until, page=page, bodies=bodies)
        return lambda: _ready_rows(rows())

    def start_ready(
        self,
        priorities: Sequence[int],
        start: CursorPosition,
        until: int,
        *,
        page: int = _PAGE,
        bodies: bool = True,
    ) -> Answer:
        """Read as :meth:`ready`, with the rows as they are: place, value, time of writing, and data if ``bodies``."""
        values = (self._shard, priorities, *start, until)
        query, columns = (CQL_READY, _READY_COLUMNS) if bodies else (CQL_BARE_READY, _BARE_COLUMNS)
        ranges = [((priority, *start), (priority, until + 1, b"", FIRST)) for priority in priorities]
        answer = self._session.start_read(query, values, page=page)
        return lambda: self._guarded(READY, answer, ranges, columns=columns, page=page)

    def all_ready(self, now: int | None, *, bodies: bool = True) -> Iterator[Ready]:
        """Read every ready row above the low watermarks, all without a moment; neighbours with one share a request."""
        places = [(-FOREVER, b"", FIRST)] * len(PRIORITIES) if now is None else self.watermarks(now).places
        same = groupby(PRIORITIES, key=lambda priority: places[priority])
        for answer in [self.ready(list(those), at, FOREVER, bodies=bodies) for at, those in same]:
            yield from answer()

    def ready_of(self, bundle_id: bytes, head: Head) -> list[Ready]:
        """Read what is left of a bundle at the place it was sent to."""
        start = head.priority, head.due, bundle_id, FIRST
        rows = scan(
            self._session, self._shard, READY, start, (*start[:3], -FIRST - 1), columns=_READY_COLUMNS
        )
        return list(_ready_rows(rows))

    def inline_ready(self, bundle_id: bytes) -> list[Ready]:
        """Read the ready row of an inline bundle."""
        made = id_time(bundle_id)
        near = self.ready(PRIORITIES, (made, b"", 0), made + SOON)()
        return [each for each in near if each.key.id == bundle_id]

    def carried(self, leases: Iterable[LeaseRow]) -> dict[bytes, bytes]:
        """Read the data of the inline bundles that these lease rows carry."""
        tokens = (lease.id for lease in leases if any(each.inline for each in lease.slices))
        chunks = [self._session.start_read(CQL_CARRIED, (self._shard, chunk)) for chunk in _chunks(tokens)]
        found: dict[bytes, bytes] = {}
        for (data,) in (row for answer in chunks for row in answer()):
            found |= decode_carried(data) if data else {}
        return found

    def start_due_rows(self, since: int, until: int, limit: int) -> Answer:
        """Ask for id, number and due time of the lease rows that are due between two moments, both included."""
        answer = self._session.start_read(CQL_DUE_ROWS, (self._shard, since, until, limit))
        ranges = [((0, since, b"", FIRST), (0, until + 1, b"", FIRST))]
        rows = partial(self._guarded, DUE_INDEX, answer, ranges)
        return lambda: ((row_id, number, due) for _, due, row_id, number in islice(rows(), limit))

    def leases(self, ids: Iterable[bytes]) -> list[LeaseRow]:
        """Read the lease rows with these ids."""
        return list(self.start_leases(ids)())

    def start_leases(self, ids: Iterable[bytes]) -> Answer:
        """Ask for the lease rows with these ids."""
        chunks = [self._session.start_read(CQL_LEASES, (self._shard, chunk)) for chunk in _chunks(ids)]
        return lambda: [LeaseRow.stored(*row) for answer in chunks for row in answer() if row[2]]

    def all_leases(self, now: int) -> list[LeaseRow]:
        """Read every lease row whose due row is above the low watermark of the due index."""
        due_rows = self.start_due_rows(self.watermarks(now).watermarks[DUE_WATERMARK], FOREVER, 2**31 - 1)()
        return self.leases(due_row[0] for due_row in due_rows)

    def every_lease(self, since: bytes = b"", *, page: int = _PAGE) -> Iterator[LeaseRow]:
        """Read every lease row from an id on, whatever its due row."""
        start, end = (0, 0, since, FIRST), (0, 1, b"", FIRST)
        rows = scan(self._session, self._shard, LEASE, start, end, columns="value", page=page)
        return (LeaseRow.stored(row_id, number, value) for _, _, row_id, number, value in rows)

    def holds_nothing(self) -> bool:
        """Return whether there is no message, in any state, wherever the low watermarks are."""
        start, end = (0, -FOREVER, b"", FIRST), (len(PRIORITIES), 0, b"", FIRST)
        kinds = (READY, LEASE, HISTORY)
        return all(
            next(scan(self._session, self._shard, kind, start, end, page=1), None) is None for kind in kinds
        )

    def watermarks(self, now: int) -> Control:
        """Read the low watermarks."""
        return believed(self.control().control, now)

    def start_bundles(self, ids: Iterable[bytes], *, consistency: int | None = None) -> Answer:
        """Ask for bundles by id, with their data."""
        chunks = [
            self._session.start_read(CQL_BUNDLES, (self._shard, chunk), consistency=consistency)
            for chunk in _chunks(ids)
        ]
        return partial(_bundle_rows, chunks)

    def heads(self, ids: Iterable[bytes]) -> dict[bytes, BundleRow]:
        """Read bundles by id, without their data."""
        chunks = [self._session.start_read(CQL_HEADS, (self._shard, chunk)) for chunk in _chunks(ids)]
        rows: dict[bytes, BundleRow] = _bundle_rows(chunks)
        return rows

    def moves(self, ids: Iterable[bytes]) -> list[tuple[bytes, Range]]:
        """Read which messages of these bundles were moved elsewhere in the last quarter of an hour."""
        chunks = [self._session.start_read(_MOVES, (self._shard, chunk)) for chunk in _chunks(ids)]
        rows = (row for answer in chunks for row in answer() if row[2])
        return [(row_id, (first, first + decode_move(value))) for row_id, first, value in rows]

    def history(
        self, start: tuple[int, bytes, int], until: int, *, above_watermark: bool = True
    ) -> Iterator[HistoryRow]:
        """Read what was processed from a place until before a moment, in order."""
        watermark = self.control().control.watermarks[HISTORY_WATERMARK] if above_watermark else -FOREVER
        first = max(start, (watermark, b"", 0))
        answer = self._session.start_read(CQL_HISTORY, (self._shard, *first, until), page=_PAGE)
        ranges = [((0, *first), (0, until, b"", FIRST))]
        for _, due, row_id, number, value in self._guarded(
            HISTORY, answer, ranges, columns="value", page=_PAGE
        ):
            yield HistoryRow(Key(HISTORY, 0, due, row_id, number), decode_kept(value))

    def _guarded(
        self, kind: int, answer: Answer, ranges: Sequence[tuple[Position, Position]], **options: Any
    ) -> Iterator[tuple[Any, ...]]:
        return guarded(self._session, self._shard, kind, answer, ranges, **options)


def _chunks(ids: Iterable[bytes]) -> Iterator[list[bytes]]:
    unique = iter(dict.fromkeys(ids))
    while chunk := list(islice(unique, _NAMES_AT_ONCE)):
        yield chunk


def _control_and_leases(answer: Answer) -> tuple[ControlRow, list[LeaseRow]]:
    control, leases = ControlRow(), []
    for kind, row_id, first, value, *rest in answer():
        if kind == CONTROL:
            control = control_row(value, *rest)
        elif value:
            leases.append(LeaseRow.stored(row_id, first, value))
    return control, leases


def _ready_rows(rows: Iterable[tuple[Any, ...]]) -> Iterator[Ready]:
    for priority, due, row_id, first, value, written_at, *data in rows:
        count, total, enqueued_at, expires_at, size = msgspec.structs.astuple(decode_ready(value))
        key = Key(READY, priority, due, row_id, first)
        carried = data[0] if data else None
        yield Ready(key, count, total, enqueued_at, value, written_at, carried, expires_at, size)


def _bundle_rows(chunks: Sequence[Answer]) -> dict[bytes, BundleRow]:
    """Return the bundles of the answers; one that was asked for its data and shows none has not arrived as a whole."""
    rows = (row for answer in chunks for row in answer() if row[1] and None not in row[3:])
    return {row[0]: _bundle_row(*row) for row in rows}


def _bundle_row(row_id: bytes, value: bytes, tally: bytes | None, data: bytes = b"") -> BundleRow:
    head = decode_head(value)
    return BundleRow(row_id, head, decode_tally(tally) if tally else Tally(head.count), value, tally, data)
