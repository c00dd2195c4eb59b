"""Looking at slices without claiming them, and counting them without their bodies."""

from __future__ import annotations

import heapq
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TypeAlias

from msgspec.structs import replace

from shardq.errors import InvalidCursor
from shardq.storage.mongodb.documents import (
    BEHIND,
    COUNT,
    COUNTED,
    DATA,
    DUE,
    ENQUEUED_AT,
    GROUP,
    HISTORY,
    PLACE,
    PRIORITY,
    SIZE,
    WAITING,
    ClaimOrder,
    Document,
    Kept,
    Row,
    Slice,
    decode,
    processed,
)
from shardq.storage.mongodb.shard_rows import CLAIM_INDEX, GROUP_INDEX, HISTORY_INDEX, ShardRows
from shardq.storage.requests import EntryState, Peek, PeekPage, ShardCounts, StoredSlice

__all__ = ["count", "counted_too", "find_many", "is_empty", "peek", "slices_of"]

_Item: TypeAlias = tuple[ClaimOrder, Row, Slice | Kept]

_CURSOR = struct.Struct(">qq16sq")
_PLACE = struct.Struct(">q")  # before the name of its group
_START: ClaimOrder = (-1, -(2**62), b"", -1)


def peek(rows: ShardRows, request: Peek, now: int) -> PeekPage:
    """Return a page in the order of delivery, or of the history in that of processing.

    The cursor is the place of the page's last slice, so that changes meanwhile shift nothing.
    """
    if rows.shard.is_grouped and not request.processed and not request.held:
        return _groups(rows, request, now)
    after = _unpack(request.after)
    items = _processed(rows, request, after) if request.processed else _waiting(rows, request, after, now)
    page: list[_Item] = []
    messages = 0
    for item in items:
        if messages >= request.limit:
            return PeekPage(tuple(_stored(*each[1:], now) for each in page), _CURSOR.pack(*page[-1][0]))
        if item[0] > after:
            page.append(item)
            messages += item[2].count
    return PeekPage(tuple(_stored(*each[1:], now) for each in page), b"")


def _groups(rows: ShardRows, request: Peek, now: int) -> PeekPage:
    """Return a page of groups, one after the other, each in its order."""
    page: list[StoredSlice] = []
    messages, at = 0, (b"", -1)
    for group, place, row, piece in _in_order(rows, request, _unpack_group(request.after)):
        if messages >= request.limit:
            return PeekPage(tuple(page), _PLACE.pack(at[1]) + at[0])
        page.append(_stored(row, piece, now))
        messages += piece.count
        at = group.encode(), place
    return PeekPage(tuple(page), b"")


def _in_order(
    rows: ShardRows, request: Peek, after: tuple[str, int]
) -> Iterator[tuple[str, int, Row, Slice]]:
    """Return the slices of groups after a place. Bundles of several messages that begin before it may go beyond."""
    ahead: list[tuple[str, int, bytes, Row, Slice]] = []
    group, place = after
    waiting: Sequence[Document] = (
        {GROUP: group, PLACE: {"$lte": place}, COUNT: {"$gt": 1}},
        {GROUP: group, PLACE: {"$gt": place}},
        {GROUP: {"$gt": group}, PLACE: {"$gt": -1}},
    )
    parts = waiting[0 if group else 2 :]
    streams = (rows.stream(each, hint=GROUP_INDEX, bodies=request.bodies) for each in parts)
    for row in chain.from_iterable(streams):
        start = (row.group, int(row.raw[PLACE]))
        while ahead and ahead[0][:2] < start:
            group, place, _, found, piece = heapq.heappop(ahead)
            yield group, place, found, piece
        for each in row.slices:
            if (row.group, row.base + each.first) > after:
                heapq.heappush(ahead, (row.group, row.base + each.first, row.id, row, each))
    while ahead:
        group, place, _, found, piece = heapq.heappop(ahead)
        yield group, place, found, piece


def slices_of(rows: Iterable[Row], request: Peek, now: int) -> Iterator[StoredSlice]:
    """Yield the slices of bundles that a request asks for."""
    for row in rows:
        for piece in row.slices:
            if _is_asked_for(request, piece, now):
                yield _stored(row, piece, now)


def find_many(
    rows: ShardRows, messages: Sequence[tuple[bytes, int]], now: int
) -> tuple[StoredSlice | None, ...]:
    """Return the slices that hold these messages, in the history too, or None.

    Messages that are not found are looked for again on a primary that was surely one when it answered. A key that is
    free depends on that, and a message which a deposed primary does not have yet is stored.
    """
    read = rows.read(dict.fromkeys(bundle_id for bundle_id, _ in messages), bodies=True)
    found = {each: _piece_at(read.get(each[0]), each[1], now) for each in messages}
    missing = dict.fromkeys(each[0] for each, piece in found.items() if piece is None)
    surely = {bundle_id: rows.read_from_primary(bundle_id).get(bundle_id) for bundle_id in missing}
    return tuple(found[each] or _piece_at(surely.get(each[0]), each[1], now) for each in messages)


def _piece_at(row: Row | None, position: int, now: int) -> StoredSlice | None:
    pieces: tuple[Slice | Kept, ...] = () if row is None else (*row.slices, *row.kept)
    for each in pieces:
        if row is not None and each.first <= position < each.end:
            return _stored(row, each, now)
    return None


def count(rows: ShardRows, now: int, *, sizes: bool) -> ShardCounts:
    """Count messages by state, out of the index but for bundles that are cut.

    The cost grows with the number of bundles. For ``sizes`` the server reads each bundle that waits.
    """
    totals = {EntryState.READY: 0, EntryState.DELAYED: 0, EntryState.IN_FLIGHT: 0}
    oldest: list[int] = []
    ready_since: int | None = None
    own = _own_due(rows)
    due, held = {"$lte": [own, now]}, {"$lt": [f"${COUNTED}", 0]}
    state = {"$cond": [due, "ready", {"$cond": [held, "in_flight", "delayed"]}]}
    group = {
        "_id": state,
        "messages": {"$sum": {"$abs": f"${COUNTED}"}},
        "oldest": {"$min": f"${ENQUEUED_AT}"},
        "due": {"$min": {"$cond": [{"$lte": [f"${DUE}", now]}, f"${DUE}", None]}},  # not of what is behind
        "cut": {"$sum": {"$cond": [{"$eq": [f"${COUNTED}", 0]}, 1, 0]}},
    }
    cut = 0
    for each in rows.aggregate([{"$match": WAITING}, {"$group": group}]):
        totals[EntryState(each["_id"])] += each["messages"]
        oldest.append(each["oldest"])
        ready_since = each["due"] if each["_id"] == EntryState.READY.value else ready_since
        cut += each["cut"]
    stages: list[Document] = [
        {"$match": processed()},
        {"$group": {"_id": None, "messages": {"$sum": {"$sum": f"${HISTORY}.{SIZE}"}}}},
    ]
    kept = sum(each["messages"] for each in rows.aggregate(stages, hint=HISTORY_INDEX))
    counts = ShardCounts(
        ready=totals[EntryState.READY],
        delayed=totals[EntryState.DELAYED],
        in_flight=totals[EntryState.IN_FLIGHT],
        processed=kept,
        oldest=min(oldest, default=None),
        ready_since=ready_since,
    )
    if cut:
        counts = counted_too(counts, rows.find(WAITING | {COUNTED: 0}), now)
    return replace(counts, bytes=_bytes(rows, now)) if sizes else counts


def counted_too(counts: ShardCounts, rows: Iterable[Row], now: int) -> ShardCounts:
    """Add the messages of bundles to counts, and their bytes if the counts have bytes."""
    for row in rows:
        totals = Counter[EntryState]()
        for piece in row.slices:
            totals[_state(piece, now)] += piece.count
        ready, delayed = totals[EntryState.READY], totals[EntryState.DELAYED]
        is_deliverable = row.slices and not row.is_behind and row.due <= now
        counts = replace(
            counts,
            ready=counts.ready + ready,
            delayed=counts.delayed + delayed,
            in_flight=counts.in_flight + totals[EntryState.IN_FLIGHT],
            oldest=_earlier(counts.oldest, row.bundle.enqueued_at if row.slices else None),
            ready_since=_earlier(counts.ready_since, row.due if is_deliverable else None),
            bytes=None if counts.bytes is None else counts.bytes + _share(row, ready + delayed),
        )
    return counts


def _earlier(one: int | None, other: int | None) -> int | None:
    return min((moment for moment in (one, other) if moment is not None), default=None)


def _share(row: Row, messages: int) -> int:
    """Return the bytes of a number of a bundle's messages, if all are alike."""
    return len(row.bundle.data) * messages // row.count


def _bytes(rows: ShardRows, now: int) -> int:
    """Add up the bytes of ready and delayed messages, as the server measures them."""
    length = {"$binarySize": f"${DATA}"}
    over: Document = {"$or": [{DUE: {"$lte": now}}, {DUE: {"$gte": BEHIND, "$lte": BEHIND + now}}]}
    free: Document = {"$or": [{COUNTED: {"$gt": 0}}, {COUNTED: {"$lt": 0}} | over]}
    whole = [{"$match": WAITING | free}, {"$group": {"_id": None, "bytes": {"$sum": length}}}]
    total = sum(int(each["bytes"]) for each in rows.aggregate(whole))
    cut: list[Document] = [{"$match": WAITING | {COUNTED: 0}}, {"$set": {DATA: length}}]
    for row in map(decode, rows.aggregate(cut)):
        waiting = sum(piece.count for piece in row.slices if _state(piece, now) is not EntryState.IN_FLIGHT)
        total += row.raw[DATA] * waiting // row.count
    return total


def _own_due(rows: ShardRows) -> object:
    """Return the due time of a bundle; in a shard of groups its own, whatever is before it."""
    due = f"${DUE}"
    if not rows.shard.is_grouped:
        return due
    return {"$cond": [{"$gte": [due, BEHIND]}, {"$subtract": [due, BEHIND]}, due]}


def is_empty(rows: ShardRows) -> bool:
    """Return whether the shard holds nothing, not even history."""
    waiting = rows.find(WAITING, limit=1)
    return not waiting and not rows.find(processed(), hint=HISTORY_INDEX, limit=1)


def _waiting(rows: ShardRows, request: Peek, after: ClaimOrder, now: int) -> Iterator[_Item]:
    """Return slices in the order of delivery, after a place. Cut bundles that begin before it may go beyond."""
    waiting = dict(WAITING)
    if request.held:
        waiting |= {COUNTED: {"$lte": 0}}  # held or cut, as the index alone tells
    if request.of_period:
        waiting |= {DUE: {"$gte": request.since, "$lt": request.until}}
    priority, due, *_ = after
    parts: Sequence[Document] = (
        {PRIORITY: priority, DUE: {"$lt": due}, COUNTED: 0},
        {PRIORITY: priority, DUE: {"$gte": due}},
        {PRIORITY: {"$gt": priority}},
    )
    asked = ({"$and": [waiting, part]} for part in parts[2 if after == _START else 0 :])
    streams = (rows.stream(each, hint=CLAIM_INDEX, bodies=request.bodies) for each in asked)
    return _merged(
        chain.from_iterable(streams),
        lambda row: (row.priority, row.due, row.id, -1),
        lambda row: [
            (_place(row, each), row, each) for each in row.slices if _is_asked_for(request, each, now)
        ],
    )


def _place(row: Row, piece: Slice) -> ClaimOrder:
    """Return the place of a slice; of one in a group, by that of its bundle in the claim index."""
    return (row.priority, row.due, row.id, piece.first) if row.group else row.place(piece)


def _processed(rows: ShardRows, request: Peek, after: ClaimOrder) -> Iterator[_Item]:
    """Return kept messages in the order of processing."""
    since = max(request.since, after[1])
    items: Callable[[Row], list[_Item]] = lambda row: [  # noqa: E731
        ((0, each.at, row.id, each.first), row, each) for each in row.kept if since <= each.at < request.until
    ]
    return _merged(
        rows.stream(processed(gte=since, lt=request.until), hint=HISTORY_INDEX, bodies=request.bodies),
        lambda row: (0, min(item[0][1] for item in items(row)), row.id, -1),
        items,
    )


def _merged(
    found: Iterable[Row], start: Callable[[Row], ClaimOrder], items: Callable[[Row], list[_Item]]
) -> Iterator[_Item]:
    """Return the items of bundles in their order; the bundles come in the order of their first one."""
    ahead: list[tuple[ClaimOrder, int, _Item]] = []
    number = 0
    for row in found:
        while ahead and ahead[0][0] < start(row):
            yield heapq.heappop(ahead)[2]
        for item in items(row):
            number += 1
            heapq.heappush(ahead, (item[0], number, item))
    while ahead:
        yield heapq.heappop(ahead)[2]


def _is_asked_for(request: Peek, piece: Slice, now: int) -> bool:
    if request.of_period and not request.since <= piece.due < request.until:
        return False
    return not request.held or _state(piece, now) is EntryState.IN_FLIGHT


def _stored(row: Row, piece: Slice | Kept, now: int) -> StoredSlice:
    if isinstance(piece, Kept):
        return StoredSlice(
            row.bundle, piece.first, piece.count, piece.deliveries, EntryState.PROCESSED, piece.at
        )
    state = _state(piece, now)
    token, started = (piece.token, not piece.unstarted) if state is EntryState.IN_FLIGHT else (None, True)
    return StoredSlice(
        row.bundle, piece.first, piece.count, piece.deliveries, state, piece.due, token, started
    )


def _state(piece: Slice, now: int) -> EntryState:
    if piece.due <= now:
        return EntryState.READY
    return EntryState.IN_FLIGHT if piece.token else EntryState.DELAYED


def _unpack_group(cursor: bytes) -> tuple[str, int]:
    if not cursor:
        return "", -1
    try:
        (place,), group = _PLACE.unpack(cursor[: _PLACE.size]), cursor[_PLACE.size :].decode()
    except (struct.error, UnicodeDecodeError):
        group = ""
    if not group:
        raise InvalidCursor(f"peek cursor {cursor!r} is not from a page of this kind: start without one")
    return group, place


def _unpack(cursor: bytes) -> ClaimOrder:
    if not cursor:
        return _START
    if len(cursor) != _CURSOR.size:
        raise InvalidCursor(f"peek cursor {cursor!r} is not from a page of this kind: start without one")
    return _CURSOR.unpack(cursor)
