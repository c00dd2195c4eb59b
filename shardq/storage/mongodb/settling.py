"""What the holder of a claim does with its messages: finish, prolong, give back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from shardq.storage.mongodb.carving import by_bundle, cut, fenced
from shardq.storage.mongodb.changing import Change, change, finish, new_stamp
from shardq.storage.mongodb.documents import Kept, Row, Slice
from shardq.storage.mongodb.session import Session
from shardq.storage.mongodb.shard_rows import ShardRows, Statement
from shardq.storage.requests import Acknowledge, Extend, Fenced, Release, Span
from shardq.storage.server_clock import ServerClock

__all__ = ["acknowledge", "extend", "finished", "holding", "kept", "release", "settle"]

# What becomes of the slices that are held; the rest of the bundle stays as it is.
Step: TypeAlias = Callable[[list[Slice]], tuple[list[Slice], list[Kept]]]


def acknowledge(session: Session, request: Acknowledge, clock: ServerClock) -> Fenced:
    """Finish what is held; a bundle that has nothing left goes, but for its id."""
    rows = ShardRows(session, request.shard)
    if request.keep:
        return settle(rows, request.spans, kept(clock.now()))
    stamp = new_stamp()
    if _finish_whole(rows, request.spans, stamp):
        return Fenced()
    return settle(rows, request.spans, finished, stamp=stamp)


def extend(session: Session, request: Extend, until: int) -> Fenced:
    """Move the end of the lease."""

    def prolong(held: list[Slice]) -> tuple[list[Slice], list[Kept]]:
        ends = [until if request.shorten else max(until, each.due) for each in held]
        return [msgspec.structs.replace(each, due=end) for each, end in zip(held, ends, strict=True)], []

    return settle(ShardRows(session, request.shard), request.spans, prolong)


def release(session: Session, request: Release, due: int) -> Fenced:
    """Let nobody hold it; without ``started`` the last delivery is not counted."""
    uncounted = 0 if request.started else 1

    def give_back(held: list[Slice]) -> tuple[list[Slice], list[Kept]]:
        return [Slice(each.first, each.count, due, each.deliveries - uncounted) for each in held], []

    return settle(ShardRows(session, request.shard), request.spans, give_back)


def settle(rows: ShardRows, spans: Sequence[Span], step: Step, *, stamp: int | None = None) -> Fenced:
    """Take the step with what is still held of the spans; return the rest of them.

    With a stamp, what carries it was finished by this call already.
    """
    wanted = by_bundle(spans)

    def decide(row: Row) -> Change | None:
        held, rest = cut(row, wanted[row.id])
        if not held:
            return None
        slices, keeping = step(held)
        return Change((*rest, *slices), (*row.kept, *keeping))

    mine = new_stamp() if stamp is None else stamp
    seen, done = change(rows, wanted, decide, mine)
    return fenced([span for span in spans if span.bundle_id not in done], seen)


def holding(rows: ShardRows, spans: Sequence[Span]) -> Fenced:
    """Tell what is not held of the spans; changes nothing."""
    return fenced(spans, rows.read(span.bundle_id for span in spans))


def finished(_: list[Slice]) -> tuple[list[Slice], list[Kept]]:
    """Leave nothing of it."""
    return [], []


def kept(now: int) -> Step:
    """Leave it for the history."""
    return lambda held: ([], [Kept(each.first, each.count, each.deliveries, now) for each in held])


def _finish_whole(rows: ShardRows, spans: Sequence[Span], stamp: int) -> bool:
    """Finish bundles that are held in one piece each, as most are, without looking; False when some were not."""
    alike: dict[tuple[bytes, int], list[bytes]] = {}
    for span in spans:
        if span.first:
            return False
        alike.setdefault((span.token, span.count), []).append(span.bundle_id)
    statements = [
        Statement({"_id": {"$in": ids}, "t": token, "n": count, "s": None, "h": None}, finish(stamp))
        for (token, count), ids in alike.items()
    ]
    return rows.change(statements) == len(spans)
