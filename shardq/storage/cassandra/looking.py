"""Looking at slices without claiming them."""

from __future__ import annotations

import heapq
import struct
from collections.abc import Iterable, Iterator
from itertools import pairwise

import msgspec

from shardq.errors import InvalidSetting
from shardq.storage.cassandra.reading import PRIORITIES, BundleRow, WideRow
from shardq.storage.cassandra.rows import READY, Holding, Key, Ready, Slice
from shardq.storage.requests import EntryState, Peek, PeekPage, ShardCounts, StoredSlice

__all__ = ["count", "find", "peek"]

_PLACE = struct.Struct(">bq16sl")  # priority (0 in the history), due or processed, bundle, position
_FOREVER = 2**62


class _Shown(msgspec.Struct, frozen=True):
    """A slice with its place in the order of delivery."""

    place: tuple[int, int, bytes, int]
    slice: Slice
    held: bool | None  # None in the history

    def stored(self, bundle: BundleRow, now: int) -> StoredSlice:
        """The slice as it is answered."""
        each, due = self.slice, self.place[1]
        whole = bundle.head.bundle(bundle.id, bundle.data)
        return StoredSlice(whole, each.first, each.count, each.deliveries, self._state(now), due)

    def _state(self, now: int) -> EntryState:
        if self.held is None:
            return EntryState.PROCESSED
        if self.place[1] <= now:
            return EntryState.READY
        return EntryState.IN_FLIGHT if self.held else EntryState.DELAYED


def peek(row: WideRow, request: Peek, now: int) -> PeekPage:
    """Return a page of what waits in the order of delivery, or of the history in that of processing.

    The cursor is the place of the page's last slice, so that what comes and goes meanwhile shifts nothing.
    """
    after = _unpack(request.after)
    shown = _history(row, request, after) if request.processed else _waiting(row, after)
    page: list[_Shown] = []
    wanted, more = request.limit, False
    for each in shown:
        if wanted <= 0:
            more = True
            break
        page.append(each)
        wanted -= each.slice.count
    bundles = row.start_bundles(each.slice.bundle_id for each in page)()
    slices = tuple(
        each.stored(bundles[each.slice.bundle_id], now) for each in page if each.slice.bundle_id in bundles
    )
    return PeekPage(slices, _PLACE.pack(*page[-1].place) if more else b"")


def find(row: WideRow, bundle_id: bytes, position: int, now: int) -> StoredSlice | None:
    """Return the slice that holds this message, in the history too, or None."""
    bundle = row.start_bundles([bundle_id])().get(bundle_id)
    if bundle is None:
        return None
    for each in _of_bundle(row, bundle):
        if each.slice.first <= position < each.slice.end:
            return each.stored(bundle, now)
    return None


def count(row: WideRow, now: int) -> ShardCounts:
    """Messages by state. The cost grows with the number of slices, not of messages or bytes."""
    states = dict.fromkeys(EntryState, 0)
    oldest: int | None = None
    for each in (*_of_holdings(row.all_holdings()), *map(_of_ready, row.all_ready())):
        states[each._state(now)] += each.slice.count
        oldest = each.slice.enqueued_at if oldest is None else min(oldest, each.slice.enqueued_at)
    processed = sum(each.kept.count for each in row.history((-1, b"", 0), _FOREVER))
    return ShardCounts(
        states[EntryState.READY], states[EntryState.DELAYED], states[EntryState.IN_FLIGHT], processed, oldest
    )


def _waiting(row: WideRow, after: tuple[int, int, bytes, int]) -> Iterator[_Shown]:
    holdings = sorted(
        (each for each in _of_holdings(row.all_holdings()) if each.place > after), key=lambda each: each.place
    )
    return heapq.merge(holdings, _ready_after(row, after), key=lambda each: each.place)


def _ready_after(row: WideRow, after: tuple[int, int, bytes, int]) -> Iterator[_Shown]:
    """Read the rest of the place's priority, then the priorities after it."""
    priority, due, bundle_id, first = after
    for start, end in pairwise((max(priority, 0), max(priority + 1, 0), len(PRIORITIES))):
        place = (due, bundle_id, first + 1) if start == priority else (-_FOREVER, b"", 0)
        if start < end:
            yield from map(_of_ready, row.ready(PRIORITIES[start:end], place, _FOREVER)())


def _history(row: WideRow, request: Peek, after: tuple[int, int, bytes, int]) -> Iterator[_Shown]:
    start = (request.since, b"", 0) if not request.after else (after[1], after[2], after[3] + 1)
    for each in row.history(start, request.until):
        kept = each.kept
        part = Slice(each.key.id, kept.first, kept.count, kept.deliveries, 0, 0, 0)
        yield _Shown((0, kept.processed_at, each.key.id, kept.first), part, None)


def _of_bundle(row: WideRow, bundle: BundleRow) -> Iterator[_Shown]:
    yield from map(_of_ready, row.ready_of(bundle.id, bundle.head))
    for each in bundle.tally.kept:
        part = Slice(bundle.id, each.first, each.count, each.deliveries, 0, 0, 0)
        yield _Shown((0, each.processed_at, bundle.id, each.first), part, None)
    yield from (each for each in _of_holdings(row.all_holdings()) if each.slice.bundle_id == bundle.id)


def _of_ready(ready: Ready) -> _Shown:
    return _Shown(ready.place, ready.slice, False)


def _of_holdings(holdings: Iterable[Holding]) -> Iterator[_Shown]:
    for holding in holdings:
        for each in holding.slices:
            place = Key(READY, each.priority, holding.due, each.bundle_id, each.first)[1:]
            yield _Shown(place, each, holding.held)


def _unpack(cursor: bytes) -> tuple[int, int, bytes, int]:
    if not cursor:
        return (-1, -1, b"", -1)
    if len(cursor) != _PLACE.size:
        raise InvalidSetting(f"peek cursor {cursor!r} is not from a page of this store: start without one")
    priority, due, bundle_id, first = _PLACE.unpack(cursor)
    return priority, due, bundle_id, first
