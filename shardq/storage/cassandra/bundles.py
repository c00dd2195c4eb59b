"""Storing bundles.

A bundle with a new id is written with a time that follows from it, the same whenever it is written again. Every claim,
finish or removal is conditional and has a later time, so a repeated append changes nothing.

The tombstones of what was claimed or removed hours ago may be gone, and some bundles keep their ids for ever, as
permits do. So an append of an old id reads first. A ready row that was taken is not written again. A bundle with a
separate row is written with the time of 16 minutes ago: removals since then stay, and a bundle that was removed before
comes back.

The bodies of what is claimed or settled are those of bundles with a separate row, and those that other rows carry.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

import msgspec
from cassandra import ConsistencyLevel

from shardq.base.log import Log
from shardq.errors import QueueNotFound
from shardq.storage.cassandra import directory
from shardq.storage.cassandra.changing import bundle_key, lower
from shardq.storage.cassandra.lease_rows import LeaseRow
from shardq.storage.cassandra.rows import (
    BUNDLE,
    READY,
    SOON,
    BundleRow,
    CursorPosition,
    Head,
    Key,
    Ready,
    Slice,
    due_row_of,
    encode,
    has_due_row,
    id_time,
)
from shardq.storage.cassandra.session import Session, Statement
from shardq.storage.cassandra.shard_rows import WideRow
from shardq.storage.read_cursors import OVERLAP
from shardq.storage.requests import Append, Bundle, ClaimedSlice
from shardq.storage.writing import after_a_write, append_in_parts, parts

__all__ = [
    "HEAD_START",
    "LATE",
    "PART_BUNDLES",
    "PART_BYTES",
    "announce_late",
    "append",
    "carried_bodies",
    "is_inline",
    "is_torn",
    "ready_of",
    "with_bundles",
]

HEAD_START = 10_000_000
"""A bundle's write time lies so long before its id's, in microseconds: later writes win although clocks differ."""

_OLD = 3_600_000_000  # microseconds: the tombstones of an older id may be gone; they are kept for three hours
_REMEMBERED = 16 * 60_000_000  # for so long what was removed stays so: a minute more than what is promised
CQL_ROW = (
    "INSERT INTO entry (shard, kind, priority, due, id, first, value) VALUES (?, ?, ?, ?, ?, ?, ?) "
    "USING TIMESTAMP ?"
)
CQL_ROW_WITH_DATA = (
    "INSERT INTO entry (shard, kind, priority, due, id, first, value, data) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ?"
)
_STORED = "SELECT kind, id, value FROM entry WHERE shard = ? AND (kind, priority, due, id, first) IN ?"
CQL_DELETE = (
    "DELETE FROM entry USING TIMESTAMP ? "
    "WHERE shard = ? AND kind = ? AND priority = ? AND due = ? AND id = ? AND first = ?"
)
PART_BYTES = 1 << 20
PART_BUNDLES = 100
LATE = OVERLAP - 400_000  # clocks agree within the difference

_log = Log(__name__)

_INLINE_BYTES = 4096


def append(session: Session, listed: directory.ListedShards, request: Append, now: Callable[[], int]) -> None:
    """Store the bundles; raises QueueNotFound."""
    shard, began = request.shard, now()
    if not listed.is_fresh(shard):
        listed.check(session, shard)
    _write(session, request, began)
    with after_a_write():
        if not listed.is_fresh(shard):
            try:
                listed.check(session, shard)
            except QueueNotFound:
                _undo(session, request, began)
                raise
        announce_late(session, request, now())


def announce_late(session: Session, request: Append, now: int) -> None:
    """Notify the shard's consumers when messages may lie where they have read already."""
    late: dict[int, CursorPosition] = {}
    for bundle in request.bundles:
        if bundle.due < now - LATE:
            place = bundle.due, b"", 0
            late[bundle.priority] = min(place, late.get(bundle.priority, place))
    if late:
        lower(session, request.shard, late)


def ready_of(bundle: Bundle) -> Ready:
    """Return the ready row of a new bundle."""
    key = Key(READY, bundle.priority, bundle.due, bundle.id, 0)
    return Ready(
        key,
        bundle.count,
        bundle.count,
        bundle.enqueued_at,
        expires_at=bundle.expires_at,
        size=len(bundle.data),
    )


def _write(session: Session, request: Append, now: int) -> None:
    shard = str(request.shard)
    taken = _taken(session, shard, [each for each in request.bundles if _is_old(each.id, now)])
    if taken:  # a small one is stored in a lease row, or as a bundle of the history
        rest = tuple(each for each in request.bundles if not (each.id in taken and is_inline(each)))
        request = msgspec.structs.replace(request, bundles=rest)
    append_in_parts(
        request,
        lambda part: session.write(list(_statements(shard, part, now, taken))),
        most_bytes=PART_BYTES,
        most_bundles=PART_BUNDLES,
    )


def _is_old(bundle_id: bytes, now: int) -> bool:
    return id_time(bundle_id) < now - _OLD


def _taken(session: Session, shard: str, old: Sequence[Bundle]) -> set[bytes]:
    """Return which of the bundles are stored, and their ready rows taken, however long ago.

    Both rows of a bundle are read in one request, so from the same replicas: where an append has arrived, both have.
    Rows that are taken meanwhile leave a tombstone that is younger than the writes then.
    """
    ids, stored, whole = {each.id for each in old}, set[bytes](), set[bytes]()
    if any(map(is_inline, old)):
        leases = WideRow(session, shard).every_lease()
        stored = ids & {each.bundle_id for lease in leases for each in lease.slices}
    for part in parts(old, PART_BYTES, PART_BUNDLES):
        sent = {each.id: ready_of(each) for each in part}
        keys = [key for each in sent.values() for key in (each.key, bundle_key(each.key.id))]
        for kind, row_id, value in session.read(_STORED, (shard, keys)):
            if kind == BUNDLE and value:
                stored.add(row_id)
            elif kind == READY and value == sent[row_id].value:
                whole.add(row_id)
    return stored - whole


def _write_time(bundle: Bundle, now: int) -> int:
    """Return the time of a bundle's write.

    A small one has no other row, so its time follows from its id however old that is.
    """
    if _is_old(bundle.id, now) and not is_inline(bundle):
        return now - _REMEMBERED
    return id_time(bundle.id) - HEAD_START


def _statements(
    shard: str, bundles: Iterable[Bundle], now: int, taken: Container[bytes]
) -> Iterator[Statement]:
    for bundle in bundles:
        timestamp = _write_time(bundle, now)
        ready = ready_of(bundle)
        if is_inline(bundle):
            yield CQL_ROW_WITH_DATA, (shard, *ready.key, ready.value, bundle.data, timestamp)
            continue
        yield (
            CQL_ROW_WITH_DATA,
            (shard, *bundle_key(bundle.id), encode(Head.of(bundle)), bundle.data, timestamp),
        )
        if bundle.id in taken:
            continue
        yield CQL_ROW, (shard, *ready.key, ready.value, timestamp)
        if has_due_row(bundle.due, bundle.id):
            yield CQL_ROW, (shard, *due_row_of(bundle.due, bundle.id), b"", timestamp)


def _undo(session: Session, request: Append, now: int) -> None:
    """Delete what was just written to a queue that is gone, with the same write time."""
    shard = str(request.shard)
    for part in parts(request.bundles, PART_BYTES, PART_BUNDLES):
        session.write([(CQL_DELETE, values) for bundle in part for values in _deletions(shard, bundle, now)])


def _deletions(shard: str, bundle: Bundle, now: int) -> Iterator[tuple[object, ...]]:
    keys = [ready_of(bundle).key, bundle_key(bundle.id)]
    if has_due_row(bundle.due, bundle.id):
        keys.append(due_row_of(bundle.due, bundle.id))
    for key in keys:
        yield _write_time(bundle, now), shard, *key


def is_inline(bundle: Bundle) -> bool:
    """Return whether the bundle is kept inside its ready row, and then inside the lease row of its claim.

    It is when it has one small message that is due at once; so its ready row can be found by its id.
    """
    return _fits(bundle.id, bundle.due, bundle.count, len(bundle.data))


def is_torn(row: WideRow, ready: Ready) -> bool:
    """Return whether a slice that was to be inline has its body nowhere: the replicas that answered miss a part of it.

    A read that finds a row on one replica repairs it on another as far as it asked for it. A count asks for no body. A
    claim of such a slice deletes its ready row, and so the body, which may still be on its way.
    """
    key = ready.key
    was_inline = ready.data is None and ready.size > 0 and _fits(key.id, key.due, ready.total, ready.size)
    return was_inline and key.id not in row.heads([key.id])  # one that was forwarded has a bundle


def _fits(bundle_id: bytes, due: int, count: int, size: int) -> bool:
    made = id_time(bundle_id)
    return count == 1 and size <= _INLINE_BYTES and made <= due <= made + SOON


def carried_bodies(
    row: WideRow, leases: Iterable[LeaseRow], slices: Iterable[Slice]
) -> dict[bytes, bytes] | None:
    """Read the bodies of some slices that lease rows carry, and no others.

    None when it is not all there. Others have finished some, or the replicas that answered lag behind those that have
    shown the lease rows. A lease row that is written without a body loses it.
    """
    found = row.carried(leases)
    wanted = {each.bundle_id for each in slices if each.inline}
    return {bundle_id: found[bundle_id] for bundle_id in wanted} if wanted <= found.keys() else None


def with_bundles(
    row: WideRow,
    slices: Sequence[Slice],
    bundles: dict[bytes, BundleRow],
    carried: Mapping[bytes, bytes] | None = None,
) -> tuple[ClaimedSlice, ...]:
    """Put the bundles to their slices; one that a replica missed is read from all of them."""
    missing = {each.bundle_id for each in slices if not each.inline} - bundles.keys()
    if missing:
        bundles = bundles | row.start_bundles(missing, consistency=ConsistencyLevel.ALL)()
    found = [each for each in slices if each.inline or _is_there(row, each, bundles)]
    return tuple([_claimed(each, bundles, carried or {}) for each in found])


def _is_there(row: WideRow, each: Slice, bundles: dict[bytes, BundleRow]) -> bool:
    there = each.bundle_id in bundles
    if not there:
        text = "shard %s has no bundle %s: it was removed meanwhile"
        _log.warning(text, row.shard, each.bundle_id.hex())
    return there


def _claimed(each: Slice, bundles: dict[bytes, BundleRow], carried: Mapping[bytes, bytes]) -> ClaimedSlice:
    bundle = each.bundle(carried[each.bundle_id]) if each.inline else bundles[each.bundle_id].bundle
    return ClaimedSlice(bundle, each.first, each.count, each.deliveries + each.unstarted)
