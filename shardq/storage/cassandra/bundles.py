"""Storing bundles.

A bundle is written with a time that follows from its id, the same whenever it is written again. Whatever
claims, finishes or removes it is conditional and has a later time, so a repeated append changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from shardq.errors import QueueNotFound
from shardq.storage.cassandra import directory
from shardq.storage.cassandra.bodies import is_inline
from shardq.storage.cassandra.changing import bundle_key, lower
from shardq.storage.cassandra.faults import after_a_write
from shardq.storage.cassandra.rows import (
    READY,
    Head,
    Key,
    Place,
    Ready,
    due_row_of,
    encode,
    has_due_row,
    id_time,
)
from shardq.storage.cassandra.session import Session, Statement
from shardq.storage.read_cursors import OVERLAP
from shardq.storage.requests import Append, Bundle
from shardq.storage.writing import append_in_parts, parts

__all__ = ["HEAD_START", "LATE", "PART_BUNDLES", "PART_BYTES", "announce_late", "append", "ready_of"]

HEAD_START = 10_000_000
"""A bundle's write time lies so long before its id's, in microseconds: later writes win although clocks differ."""

_ROW = "INSERT INTO entry (shard, kind, priority, due, id, first, value) VALUES (?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ?"
_ROW_WITH_DATA = (
    "INSERT INTO entry (shard, kind, priority, due, id, first, value, data) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ?"
)
_DELETE = (
    "DELETE FROM entry USING TIMESTAMP ? "
    "WHERE shard = ? AND kind = ? AND priority = ? AND due = ? AND id = ? AND first = ?"
)
PART_BYTES = 1 << 20
PART_BUNDLES = 100
LATE = OVERLAP - 400_000  # clocks agree within the difference


def append(session: Session, entered: directory.Entered, request: Append, now: Callable[[], int]) -> None:
    """Store the bundles; raises QueueNotFound."""
    shard = request.shard
    if not entered.is_fresh(shard):
        entered.look(session, shard)
    _write(session, request)
    with after_a_write():
        if not entered.is_fresh(shard):
            try:
                entered.look(session, shard)
            except QueueNotFound:
                _undo(session, request)
                raise
        announce_late(session, request, now())


def announce_late(session: Session, request: Append, now: int) -> None:
    """Tell the shard's consumers when something may lie where they have been already."""
    late: dict[int, Place] = {}
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


def _write(session: Session, request: Append) -> None:
    shard = str(request.shard)
    append_in_parts(
        request,
        lambda part: session.write(list(_statements(shard, part))),
        most_bytes=PART_BYTES,
        most_bundles=PART_BUNDLES,
    )


def _statements(shard: str, bundles: Iterable[Bundle]) -> Iterator[Statement]:
    for bundle in bundles:
        timestamp = id_time(bundle.id) - HEAD_START
        ready = ready_of(bundle)
        if is_inline(bundle):
            yield _ROW_WITH_DATA, (shard, *ready.key, ready.value, bundle.data, timestamp)
            continue
        yield _ROW, (shard, *ready.key, ready.value, timestamp)
        yield _ROW_WITH_DATA, (shard, *bundle_key(bundle.id), encode(Head.of(bundle)), bundle.data, timestamp)
        if has_due_row(bundle.due, bundle.id):
            yield _ROW, (shard, *due_row_of(bundle.due, bundle.id), b"", timestamp)


def _undo(session: Session, request: Append) -> None:
    """Delete what was just written to a queue that is gone, with the same write time."""
    shard = str(request.shard)
    for part in parts(request.bundles, PART_BYTES, PART_BUNDLES):
        session.write([(_DELETE, values) for bundle in part for values in _deletions(shard, bundle)])
    directory.leave(session, request.shard)


def _deletions(shard: str, bundle: Bundle) -> Iterator[tuple[object, ...]]:
    keys = [ready_of(bundle).key, bundle_key(bundle.id)]
    if has_due_row(bundle.due, bundle.id):
        keys.append(due_row_of(bundle.due, bundle.id))
    for key in keys:
        yield id_time(bundle.id) - HEAD_START, shard, *key
