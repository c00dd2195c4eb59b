"""Messages that are finished, and the bundles that go with their last one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from shardq.storage.cassandra.changing import Change
from shardq.storage.cassandra.rows import (
    HISTORY,
    BundleRow,
    Head,
    Kept,
    Key,
    Ready,
    Slice,
    Tally,
    due_row_of,
    encode,
    has_due_row,
)
from shardq.storage.cassandra.shard_rows import WideRow

__all__ = ["finish", "finish_ready", "give_up", "keep"]


def finish(change: Change, row: WideRow, slices: Sequence[Slice]) -> None:
    """Count the messages as finished; a bundle that has no others is deleted, an inline one goes with its lease row.

    Of a bundle whose row is gone, as replicas have lost it, nothing is left to count: its messages are finished.
    """
    parts: dict[bytes, int] = {}
    for each in slices:
        if each.inline:
            continue
        if each.count == each.total:
            change.drop_bundle(each.bundle_id)
        else:
            parts[each.bundle_id] = parts.get(each.bundle_id, 0) + each.count
    for bundle in row.heads(parts).values() if parts else ():
        _count(change, bundle, Tally(bundle.tally.left - parts[bundle.id], bundle.tally.kept))


def finish_ready(change: Change, row: WideRow, ready: Sequence[Ready], slices: Sequence[Slice]) -> None:
    """Finish slices; whole bundles that were delayed lose their due row too."""
    finish(change, row, slices)
    whole = {each.bundle_id for each in slices if each.count == each.total}
    for each in ready:
        if each.key.id in whole and has_due_row(each.key.due, each.key.id):
            change.delete(due_row_of(each.key.due, each.key.id))


def keep(
    change: Change, row: WideRow, slices: Sequence[Slice], carried: Mapping[bytes, bytes], now: int
) -> None:
    """Finish the messages and keep them as processed; inline bundles get a row of their own for it."""
    kept: dict[bytes, list[Kept]] = {}
    for each in slices:
        one = Kept(now, each.first, each.count, each.deliveries + each.unstarted)
        if each.inline:
            whole = each.bundle(carried[each.bundle_id])
            change.write(_place(whole.id, one), encode(one))
            change.store_finished(whole.id, Head.of(whole), Tally(0, (one,)), whole.data)
        else:
            kept.setdefault(each.bundle_id, []).append(one)
    for bundle in row.heads(kept).values() if kept else ():
        new = kept[bundle.id]
        for one in new:
            change.write(_place(bundle.id, one), encode(one))
        left = bundle.tally.left - sum(one.count for one in new)
        _count(change, bundle, Tally(left, (*bundle.tally.kept, *new)))


def give_up(change: Change, bundle: BundleRow, old: Iterable[Kept], rest: Iterable[Kept] = ()) -> None:
    """Take what is kept of a bundle out of the history; parts of it, ``rest``, may stay."""
    given_up, staying = set(old), tuple(rest)
    for each in given_up:
        change.delete_seen(_place(bundle.id, each), encode(each))
    for each in staying:
        change.write(_place(bundle.id, each), encode(each))
    kept = (*(each for each in bundle.tally.kept if each not in given_up), *staying)
    _count(change, bundle, Tally(bundle.tally.left, kept))


def _count(change: Change, bundle: BundleRow, tally: Tally) -> None:
    change.tally(bundle.id, bundle.seen_head, bundle.seen_tally, tally)
    if not tally.left and has_due_row(bundle.head.due, bundle.id):
        change.delete(due_row_of(bundle.head.due, bundle.id))


def _place(bundle_id: bytes, kept: Kept) -> Key:
    return Key(HISTORY, 0, kept.processed_at, bundle_id, kept.first)
