"""Looking at the slices of groups without claiming them, and counting them."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from shardq.base.outgoing_message import Bundle
from shardq.errors import InvalidCursor
from shardq.storage.cassandra.groups.reading import GroupReader, GroupRow
from shardq.storage.cassandra.groups.rows import Member, group_id
from shardq.storage.cassandra.peeking import found
from shardq.storage.cassandra.rows import BundleRow
from shardq.storage.requests import EntryState, Peek, PeekPage, ShardCounts, StoredSlice

__all__ = ["count", "find", "is_empty", "peek"]

_CURSOR = struct.Struct(">16sql")  # group, place in it, position in the bundle


def peek(reader: GroupReader, request: Peek, now: int) -> PeekPage:
    """Return a page of pending messages, group after group, each in its order.

    The cursor is the place of the page's last slice in its group, so that changes meanwhile shift nothing. A page that
    a change overtook is read again, five times at most.
    """
    return reader.row.undisturbed(lambda: _page(reader, request, now))[0]


def find(reader: GroupReader, bundle_id: bytes, position: int, now: int) -> StoredSlice | None:
    """Return the slice that holds this message, in the history too, or None. Raises StoreUnavailable, see `found`.

    A bundle of a group has a row until all of it is finished: without one nothing of it is stored.
    """
    if not reader.row.heads([bundle_id]):
        return None
    return found(reader.row, lambda: _find(reader, bundle_id, position, now))


def count(reader: GroupReader, now: int, *, sizes: bool) -> ShardCounts:
    """Count messages by state. The cost grows with the number of slices."""
    return reader.row.undisturbed(lambda: _count(reader, now, sizes=sizes))[0]


def is_empty(reader: GroupReader) -> bool:
    """Return whether the shard holds nothing, its history included; False while it is changed all the time."""
    return reader.row.undisturbed(reader.row.holds_nothing) == (True, True)


def _page(reader: GroupReader, request: Peek, now: int) -> PeekPage:
    shown: list[tuple[bytes, Member, bytes | None]] = []
    wanted, more = request.limit, False
    for each in _each(reader, *_unpack(request.after), held=request.held):
        if request.held and _state(*each[1:], now) is not EntryState.IN_FLIGHT:
            continue
        if wanted <= 0:
            more = True
            break
        shown.append(each)
        wanted -= each[1].slice.count
    ids = [member.slice.bundle_id for _, member, _ in shown]
    bundles = reader.row.start_bundles(ids)() if request.bodies else reader.row.heads(ids)
    slices = tuple(
        _stored(bundles[member.slice.bundle_id].bundle, member, token, now)
        for _, member, token in shown
        if member.slice.bundle_id in bundles
    )
    return PeekPage(slices, _pack(*shown[-1][:2]) if more else b"")


def _each(
    reader: GroupReader, group: bytes, place: int, first: int, *, held: bool
) -> Iterator[tuple[bytes, Member, bytes | None]]:
    """Return the slices after a place of a group, with the group and the token under which they are held.

    With ``held`` what is behind the windows is left out.
    """
    for row in reader.from_group(group):
        row_id = group_id(row.group.name)
        after, since = (place, place - first) if row_id == group else (-1, 0)
        members = _window(row) if held else _members(reader, row, since)
        yield from ((row_id, each, token) for each, token in members if each.place > after)


def _members(reader: GroupReader, row: GroupRow, since: int = 0) -> Iterator[tuple[Member, bytes | None]]:
    """Return the slices of a group; of what is behind its window, the rows from a place on."""
    yield from _window(row)
    for _, parts in reader.behind(row.group, since):
        yield from ((each, None) for each in parts)


def _window(row: GroupRow) -> Iterator[tuple[Member, bytes | None]]:
    for number, each in enumerate(row.group.members):
        yield each, row.group.holder(each) if number < row.group.held else None


def _find(reader: GroupReader, bundle_id: bytes, position: int, now: int) -> StoredSlice | None:
    bundle = reader.row.start_bundles([bundle_id])().get(bundle_id)
    if bundle is None:
        return None
    for kept in bundle.tally.kept:
        if kept.first <= position < kept.end:
            processed = (kept.deliveries, EntryState.PROCESSED, kept.processed_at)
            return StoredSlice(bundle.bundle, kept.first, kept.count, *processed)
    for each, token in _of_bundle(reader, bundle):
        if each.slice.bundle_id == bundle_id and each.slice.first <= position < each.slice.end:
            return _stored(bundle.bundle, each, token, now)
    return None


def _of_bundle(reader: GroupReader, bundle: BundleRow) -> Iterator[tuple[Member, bytes | None]]:
    """Return the slices among which those of a bundle are."""
    for row in reader.groups([group_id(bundle.head.group)]).values():
        yield from _window(row)
        yield from ((each, None) for each in reader.behind_at(row.group, bundle.head.place))


def _count(reader: GroupReader, now: int, *, sizes: bool) -> ShardCounts:
    states = dict.fromkeys(EntryState, 0)
    size, oldest, ready_since = 0, None, None
    for row in reader.every_group(now):
        for number, (each, token) in enumerate(_members(reader, row)):
            state = _state(each, token, now)
            states[state] += each.slice.count
            size += 0 if state is EntryState.IN_FLIGHT else each.slice.share
            oldest = min(oldest or each.slice.enqueued_at, each.slice.enqueued_at)
            if state is EntryState.READY and number == 0:  # the others wait for it
                ready_since = min(ready_since or each.due, each.due)
    processed = sum(each.kept.count for each in reader.row.history((-1, b"", 0), 2**62))
    waiting = (states[EntryState.READY], states[EntryState.DELAYED], states[EntryState.IN_FLIGHT])
    return ShardCounts(*waiting, processed, oldest, ready_since, size if sizes else None)


def _state(each: Member, token: bytes | None, now: int) -> EntryState:
    if each.due <= now:
        return EntryState.READY
    return EntryState.DELAYED if token is None else EntryState.IN_FLIGHT


def _stored(bundle: Bundle, each: Member, token: bytes | None, now: int) -> StoredSlice:
    one, state = each.slice, _state(each, token, now)
    held = (token, not one.unstarted) if state is EntryState.IN_FLIGHT else (None, True)
    return StoredSlice(bundle, one.first, one.count, one.deliveries, state, each.due, *held)


def _pack(group: bytes, last: Member) -> bytes:
    return _CURSOR.pack(group, last.place, last.slice.first)


def _unpack(cursor: bytes) -> tuple[bytes, int, int]:
    if not cursor:
        return b"", -1, 0
    if len(cursor) != _CURSOR.size:
        raise InvalidCursor(f"peek cursor {cursor!r} is not from a page of this kind: start without one")
    group, place, first = _CURSOR.unpack(cursor)
    return group, place, first
