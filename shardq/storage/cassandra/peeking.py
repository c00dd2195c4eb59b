"""Looking at slices without claiming them, and counting them."""

from __future__ import annotations

import heapq
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import TypeVar

import msgspec

from shardq.errors import InvalidCursor, StoreUnavailable
from shardq.storage.cassandra.lease_rows import LeaseRow
from shardq.storage.cassandra.rows import READY, BundleRow, Key, Ready, Slice
from shardq.storage.cassandra.shard_rows import WideRow
from shardq.storage.read_cursors import PRIORITIES
from shardq.storage.requests import EntryState, Peek, PeekPage, ShardCounts, StoredSlice

__all__ = ["count", "find", "found", "is_empty", "peek"]

T = TypeVar("T")

_PLACE = struct.Struct(">bq16sl")  # priority (0 in the history), due or processed, bundle, position
_FOREVER = 2**62


class _Shown(msgspec.Struct, frozen=True):
    """A slice with its place in the order of delivery."""

    place: tuple[int, int, bytes, int]
    slice: Slice
    held: bool | None  # None in the history
    token: bytes | None = None  # while it is held
    data: bytes | None = None  # None: in a row of the bundle's own

    def stored(self, bundles: Mapping[bytes, BundleRow], now: int) -> StoredSlice | None:
        """Return the slice as it is answered; None when its bundle is gone."""
        each, due = self.slice, self.place[1]
        if self.data is not None:
            bundle = each.bundle(self.data)
        elif each.bundle_id in bundles:
            bundle = bundles[each.bundle_id].bundle
        else:
            return None
        state = self.state(now)
        token, started = (self.token, not each.unstarted) if state is EntryState.IN_FLIGHT else (None, True)
        return StoredSlice(bundle, each.first, each.count, each.deliveries, state, due, token, started)

    def state(self, now: int) -> EntryState:
        if self.held is None:
            return EntryState.PROCESSED
        if self.place[1] <= now:
            return EntryState.READY
        return EntryState.IN_FLIGHT if self.held else EntryState.DELAYED


def peek(row: WideRow, request: Peek, now: int) -> PeekPage:
    """Return a page of pending messages in the order of delivery, or of the history in that of processing.

    The cursor is the place of the page's last slice, so that changes meanwhile shift nothing. Pending messages are
    read in parts: a page that a claim overtook is read again, five times at most.
    """
    after = _unpack(request.after)
    if request.processed:
        return _page(row, request, _history(row, request, after), now)
    return row.undisturbed(lambda: _page(row, request, _waiting(row, request, after, now), now))[0]


def find(row: WideRow, bundle_id: bytes, position: int, now: int) -> StoredSlice | None:
    """Return the slice that holds this message, in the history too, or None. Raises StoreUnavailable, see `found`."""
    return found(row, lambda: _find(row, bundle_id, position, now))


def count(row: WideRow, now: int, *, sizes: bool) -> ShardCounts:
    """Count messages by state. The cost grows with the number of slices, not of messages or bytes.

    Messages that others move all the while are counted as they were found: once, twice or not at all.
    """
    return row.undisturbed(lambda: _count(row, now, sizes=sizes))[0]


def found(row: WideRow, read: Callable[[], T | None]) -> T | None:
    """Return the result of a read, or None where nothing moved while it found nothing.

    A message that any read finds is stored. Else StoreUnavailable is raised: a caller that got None would store the
    message again, or remove its parts.
    """
    latest: T | None = None

    def noted() -> T | None:
        nonlocal latest
        seen = read()
        latest = latest if seen is None else seen
        return seen

    seen, certain = row.undisturbed(noted)
    if certain:
        return seen
    if latest is None:
        raise StoreUnavailable(
            "others change the shard all the time, so it is not known whether a message is stored: try again"
        )
    return latest


def is_empty(row: WideRow, now: int) -> bool:
    """Return whether the shard holds nothing, its history included; False while it is changed all the time.

    It ignores low watermarks: a shard that holds something must not be taken out of the directory.
    """
    return row.undisturbed(lambda: _count(row, now) == ShardCounts() and row.holds_nothing()) == (True, True)


def _page(row: WideRow, request: Peek, shown: Iterator[_Shown], now: int) -> PeekPage:
    page: list[_Shown] = []
    wanted, more = request.limit, False
    for each in shown:
        if wanted <= 0:
            more = True
            break
        page.append(each)
        wanted -= each.slice.count
    apart = [each.slice.bundle_id for each in page if each.data is None]
    bundles = row.start_bundles(apart)() if request.bodies else row.heads(apart)
    slices = (each.stored(bundles, now) for each in page)
    return PeekPage(
        tuple(each for each in slices if each is not None), _PLACE.pack(*page[-1].place) if more else b""
    )


def _find(row: WideRow, bundle_id: bytes, position: int, now: int) -> StoredSlice | None:
    bundles = row.start_bundles([bundle_id])()
    for each in _of_bundle(row, bundle_id, bundles.get(bundle_id)):
        if each.slice.first <= position < each.slice.end:
            return each.stored(bundles, now)
    return None


def _count(row: WideRow, now: int, *, sizes: bool = False) -> ShardCounts:
    size = 0
    states = dict.fromkeys(EntryState, 0)
    oldest: int | None = None
    due: list[int] = []
    ready = row.all_ready(now, bodies=False)
    for each in (*_of_leases(row.all_leases(now), {}), *map(_of_ready, ready)):
        states[each.state(now)] += each.slice.count
        size += 0 if each.state(now) is EntryState.IN_FLIGHT else each.slice.share
        due += [each.place[1]] if each.state(now) is EntryState.READY else []
        oldest = each.slice.enqueued_at if oldest is None else min(oldest, each.slice.enqueued_at)
    processed = sum(each.kept.count for each in row.history((-1, b"", 0), _FOREVER))
    return ShardCounts(
        states[EntryState.READY],
        states[EntryState.DELAYED],
        states[EntryState.IN_FLIGHT],
        processed,
        oldest,
        min(due, default=None),
        size if sizes else None,
    )


def _waiting(row: WideRow, request: Peek, after: tuple[int, int, bytes, int], now: int) -> Iterator[_Shown]:
    """Return pending messages; without bodies they are known from their slices, and no bundle is read."""
    bodies, held = request.bodies, row.all_leases(now)
    if request.held:
        held = [each for each in held if each.held and each.due > now]
    shown = _of_leases(held, row.carried(held) if bodies else {})
    leases = sorted((each for each in shown if each.place > after), key=lambda each: each.place)
    if request.of_period:
        leases = [each for each in leases if request.since <= each.place[1] < request.until]
    ready = () if request.held else _ready_after(row, request, after)
    merged = heapq.merge(leases, ready, key=lambda each: each.place)
    return merged if bodies else (msgspec.structs.replace(each, data=b"") for each in merged)


def _ready_after(row: WideRow, request: Peek, after: tuple[int, int, bytes, int]) -> Iterator[_Shown]:
    """Read the rest of the place's priority, then the priorities after it."""
    priority, due, bundle_id, first = after
    since, until = (request.since, request.until - 1) if request.of_period else (-_FOREVER, _FOREVER)
    for start, end in pairwise((max(priority, 0), max(priority + 1, 0), len(PRIORITIES))):
        place = (due, bundle_id, first + 1) if start == priority else (since, b"", 0)
        if start < end:
            found = row.ready(PRIORITIES[start:end], place, until, bodies=request.bodies)
            yield from map(_of_ready, found())


def _history(row: WideRow, request: Peek, after: tuple[int, int, bytes, int]) -> Iterator[_Shown]:
    start = (request.since, b"", 0) if not request.after else (after[1], after[2], after[3] + 1)
    for each in row.history(start, request.until):
        kept = each.kept
        part = Slice(each.key.id, kept.first, kept.count, kept.deliveries, 0, 0, 0, 0)
        yield _Shown((0, kept.processed_at, each.key.id, kept.first), part, None)


def _of_bundle(row: WideRow, bundle_id: bytes, bundle: BundleRow | None) -> Iterator[_Shown]:
    """Find the slices of a bundle; one without a separate row is an inline one, or gone."""
    if bundle is None:
        yield from map(_of_ready, row.inline_ready(bundle_id))
    else:
        yield from map(_of_ready, row.ready_of(bundle.id, bundle.head))
        for each in bundle.tally.kept:
            part = Slice(bundle.id, each.first, each.count, each.deliveries, 0, 0, 0, 0)
            yield _Shown((0, each.processed_at, bundle.id, each.first), part, None)
    leases = [each for each in row.every_lease() if any(s.bundle_id == bundle_id for s in each.slices)]
    for shown in _of_leases(leases, row.carried(leases)):
        if shown.slice.bundle_id == bundle_id:
            yield shown


def _of_ready(ready: Ready) -> _Shown:
    return _Shown(ready.place, ready.slice, False, data=ready.data)


def _of_leases(leases: Iterable[LeaseRow], carried: Mapping[bytes, bytes]) -> Iterator[_Shown]:
    for lease in leases:
        for each in lease.slices:
            place = Key(READY, each.priority, lease.due_of(each), each.bundle_id, each.first)[1:]
            data = carried.get(each.bundle_id) if each.inline else None
            yield _Shown(place, each, lease.held, lease.id if lease.held else None, data)


def _unpack(cursor: bytes) -> tuple[int, int, bytes, int]:
    if not cursor:
        return (-1, -1, b"", -1)
    if len(cursor) != _PLACE.size:
        raise InvalidCursor(f"peek cursor {cursor!r} is not from a page of this store: start without one")
    priority, due, bundle_id, first = _PLACE.unpack(cursor)
    return priority, due, bundle_id, first
