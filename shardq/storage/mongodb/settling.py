"""The operations of the holder of a claim on its messages: finish, extend, release."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeAlias

from msgspec.structs import replace

from shardq.storage.mongodb import group_changes
from shardq.storage.mongodb.changing import Change, Decision, change, finish, new_stamp
from shardq.storage.mongodb.client import Client
from shardq.storage.mongodb.documents import (
    COUNT,
    DELIVERIES,
    DUE,
    HISTORY,
    SENT_DUE,
    SLICES,
    TOKEN,
    UNSTARTED,
    Document,
    Kept,
    Row,
    Slice,
)
from shardq.storage.mongodb.shard_rows import ShardRows, Statement
from shardq.storage.mongodb.slicing import by_bundle, cut, fenced
from shardq.storage.requests import Acknowledge, Extend, Fenced, Release, Span

__all__ = ["acknowledge", "decision", "extend", "finished", "kept", "not_held", "release", "settle"]

# The new state of a bundle's held slices; the rest of it stays as it is.
Step: TypeAlias = Callable[[Row, list[Slice]], tuple[list[Slice], list[Kept]]]


def acknowledge(client: Client, request: Acknowledge) -> Fenced:
    """Finish held messages; a bundle that has nothing left is deleted, but for its id and its moved messages."""
    rows = ShardRows(client.session, request.shard)
    if request.keep:
        client.collections.index(request.shard, history=True)
    step = kept(client.clock.now()) if request.keep else finished
    if request.shard.is_grouped:
        decide = decision(request.spans, step, moved=request.moved)
        return group_changes.settle(client, request.shard, request.spans, decide, ends=True)
    if request.keep:
        return settle(rows, request.spans, step, moved=request.moved)
    stamp = new_stamp()
    if _change_whole(rows, request.spans, partial(_finished, stamp, request.moved)):
        return Fenced()
    return settle(rows, request.spans, finished, stamp=stamp, moved=request.moved)


def extend(client: Client, request: Extend) -> Fenced:
    """Move the end of the lease; with ``starts`` count the delivery where it is not counted yet."""
    until = request.until(client.clock.now())

    def prolong(_: Row, held: list[Slice]) -> tuple[list[Slice], list[Kept]]:
        ends = [until if request.shorten else max(until, each.due) for each in held]
        if request.starts:
            held = [replace(each, deliveries=each.all_deliveries, unstarted=False) for each in held]
        return [replace(each, due=end) for each, end in zip(held, ends, strict=True)], []

    rows = ShardRows(client.session, request.shard)
    fenced = Fenced()
    if request.shard.is_grouped:
        decide = decision(request.spans, prolong)
        if request.blocks:
            return group_changes.leave_alone(client, request.shard, request.spans, decide)
        return group_changes.settle(client, request.shard, request.spans, decide, ends=False)
    if not _change_whole(rows, request.spans, partial(_prolonged, request, until)):
        fenced = settle(rows, request.spans, prolong)
    client.cursors.put_off(request.shard, until)
    return fenced


def release(client: Client, request: Release) -> Fenced:
    """Release the messages; without ``started`` the last delivery is not counted.

    Messages that were never delivered then are due again by their bundle's due time, unless there is a delay.
    """
    due = client.clock.now() + request.delay
    uncounted = 0 if request.started else 1
    keeps_place = not request.started and not request.delay
    moments: dict[int, int] = {}  # by priority, the first from which something is due again

    def freed(row: Row, held: list[Slice]) -> tuple[list[Slice], list[Kept]]:
        free = []
        for each in held:
            deliveries = each.all_deliveries - uncounted
            again = min(row.raw[SENT_DUE], due) if keeps_place and not deliveries else due
            moments[row.priority] = min(again, moments.get(row.priority, again))
            free.append(Slice(each.first, each.count, again, deliveries))
        return free, []

    if request.shard.is_grouped:
        decide = decision(request.spans, freed)
        return group_changes.release(client, request.shard, request.spans, decide)
    fenced = settle(ShardRows(client.session, request.shard), request.spans, freed)
    client.cursors.due_again(request.shard, moments)
    return fenced


def settle(
    rows: ShardRows, spans: Sequence[Span], step: Step, *, stamp: int | None = None, moved: bool = False
) -> Fenced:
    """Take the step with the held messages of the spans; return the rest of them.

    With a stamp, what carries it was finished by this call already. With ``moved`` the step finishes what is stored
    elsewhere.
    """
    mine = new_stamp() if stamp is None else stamp
    ids = [span.bundle_id for span in spans]
    seen, done = change(rows, ids, decision(spans, step, moved=moved), mine)
    return fenced([span for span in spans if span.bundle_id not in done], seen)


def decision(spans: Sequence[Span], step: Step, *, moved: bool = False) -> Decision:
    """Return what is decided of each bundle of the spans: the step with what is still held of them."""
    wanted = by_bundle(spans)

    def decide(row: Row) -> Change | None:
        held, rest = cut(row, wanted[row.id])
        if not held:
            return None
        slices, keeping = step(row, held)
        gone = tuple((each.first, each.end) for each in held) if moved else ()
        return Change((*rest, *slices), (*row.kept, *keeping), gone)

    return decide


def not_held(rows: ShardRows, spans: Sequence[Span]) -> Fenced:
    """Return the parts of the spans that are not held; changes nothing."""
    return fenced(spans, rows.read(span.bundle_id for span in spans))


def finished(_row: Row, _held: list[Slice]) -> tuple[list[Slice], list[Kept]]:
    """Leave nothing of it."""
    return [], []


def kept(now: int) -> Step:
    """Leave it for the history."""
    return lambda _, held: ([], [Kept(each.first, each.count, each.all_deliveries, now) for each in held])


def _change_whole(
    rows: ShardRows, spans: Sequence[Span], changes: Callable[[Document, int], Iterable[Statement]]
) -> bool:
    """Change bundles that are held in one piece each, as most are, without a read; False when some were not.

    ``changes`` returns the statements for bundles that a filter finds, given the number of messages of each. Each
    bundle fits one.
    """
    alike: dict[tuple[bytes, int], list[bytes]] = {}
    for span in spans:
        if span.first:
            return False
        alike.setdefault((span.token, span.count), []).append(span.bundle_id)
    statements: list[Statement] = []
    for (token, count), ids in alike.items():
        held = {"_id": {"$in": ids}, TOKEN: token, COUNT: count, SLICES: None, HISTORY: None}
        statements += changes(held, count)
    return rows.change(statements) == len(spans)


def _finished(stamp: int, moved: bool, held: Document, count: int) -> Iterable[Statement]:
    yield Statement(held, finish(stamp, [(0, count)] if moved else []))


def _prolonged(request: Extend, until: int, held: Document, _: int) -> Iterable[Statement]:
    """Yield the statements. With ``starts``, the second counts the delivery of those that the first leaves out."""
    longer: Document = {"$set" if request.shorten else "$max": {DUE: until}}
    if not request.starts:
        yield Statement(held, longer)
        return
    yield Statement(held | {UNSTARTED: None}, longer)
    yield Statement(held | {UNSTARTED: True}, longer | {"$inc": {DELIVERIES: 1}, "$unset": {UNSTARTED: 1}})
