"""The operations of the holder of a claim on its slices: finish, extend, release, forward."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from typing import TypeAlias

import msgspec

from shardq.base.shard import Shard
from shardq.errors import UnsupportedByStore
from shardq.storage.cassandra import bundles, directory, finishing, removal
from shardq.storage.cassandra.bundles import carried_bodies
from shardq.storage.cassandra.changing import Change, attempts
from shardq.storage.cassandra.lease_rows import Held, LeaseRow
from shardq.storage.cassandra.rows import Head, Slice, due_row_of, has_due_row
from shardq.storage.cassandra.session import Session
from shardq.storage.cassandra.shard_rows import WideRow
from shardq.storage.cassandra.slicing import Cut, became, cut
from shardq.storage.requests import Acknowledge, Append, Bundle, Extend, Fenced, Forward, Release, Span
from shardq.storage.slicing import Range, pending_in
from shardq.storage.writing import after_a_write

__all__ = ["Moment", "acknowledge", "extend", "forward", "release"]

# Asked for anew in every attempt: a moment that is written must not be an old one, see `read_cursors.GUARD`.
Moment: TypeAlias = Callable[[], int]
_Step: TypeAlias = Callable[[Change, Sequence[Cut]], None]
_MOST_SPANS = 2_000
"""In a change. A span names at most one small bundle, so a change writes at most 8 MiB of their bodies."""


class _Overtaken(Exception):
    """Slices that this client holds are not there any more."""


def acknowledge(session: Session, held: Held, request: Acknowledge, now: Moment) -> Fenced:
    """Finish the slices; with ``keep`` note them in the history."""
    row = WideRow(session, str(request.shard))
    return _settle(
        session,
        held,
        request.shard,
        request.spans,
        lambda change, cuts: _end(change, row, cuts, request, now()),
    )


def extend(session: Session, held: Held, request: Extend, now: Moment) -> Fenced:
    """Hold the slices until now + lease."""

    def step(change: Change, cuts: Sequence[Cut]) -> None:
        until = now() + request.lease
        alike: dict[tuple[bytes, int], list[Cut]] = {}
        for each in cuts:
            end = until if request.shorten else max(until, each.lease.due)
            alike.setdefault((each.lease.id, end), []).append(each)
        for (token, end), parts in alike.items():
            slices = tuple(_started(named, request) for each in parts for named in each.named)
            prolonged = LeaseRow(token, _number(parts), end, True, slices)
            stays = all(each.lease.key == prolonged.key for each in parts)
            change.hold(prolonged, None if stays else _carried(row, parts))

    row = WideRow(session, str(request.shard))
    return _settle(session, held, request.shard, request.spans, step)


def release(session: Session, held: Held, request: Release, now: Moment) -> Fenced:
    """Give the slices back; without ``started`` their last delivery is not counted."""

    def step(change: Change, cuts: Sequence[Cut]) -> None:
        slices = tuple(_released(named, request) for each in cuts for named in each.named)
        change.hold(LeaseRow(os.urandom(16), 0, now() + request.delay, False, slices), _carried(row, cuts))

    row = WideRow(session, str(request.shard))
    return _settle(session, held, request.shard, request.spans, step)


def forward(session: Session, held: Held, request: Forward, now: Moment) -> Fenced:
    """Acknowledge and append, or neither when some message is lost or gone; within one shard."""
    shard = request.acknowledge.shard
    if request.append.shard != shard:
        raise UnsupportedByStore(
            f"Cassandra cannot forward from shard {shard} to {request.append.shard} in one step: send, then ack"
        )
    directory.enter(session, shard)
    row = WideRow(session, str(shard))
    if pending_in(request.acknowledge) is not None:
        return _forward_pending(session, row, request, now)
    moved = msgspec.structs.replace(request.acknowledge, moved=True)

    def step(change: Change, cuts: Sequence[Cut]) -> None:
        _end(change, row, cuts, moved, now())
        known = row.heads(bundle.id for bundle in request.append.bundles)
        for bundle in request.append.bundles:
            if bundle.id not in known:
                _add(change, bundle)

    fenced = _settle(session, held, shard, request.acknowledge.spans, step, complete=True)
    if not fenced.lost and not fenced.gone:
        with after_a_write():
            bundles.announce_late(session, Append(shard, request.append.bundles), now())
    return fenced


def _forward_pending(session: Session, row: WideRow, request: Forward, now: Moment) -> Fenced:
    """Exchange a message that nobody holds for bundles, or do nothing when somebody holds it or it is gone."""
    shard, spans = request.acknowledge.shard, request.acknowledge.spans
    with session.lock(str(shard)):
        for _ in attempts(shard):
            change, certain = row.undisturbed(lambda: _exchange(session, row, request, now()))
            if change is None and certain:
                break
            if change is not None and change.apply():
                with after_a_write():
                    bundles.announce_late(session, Append(shard, request.append.bundles), now())
                return Fenced()
    return became(row, spans, lambda: _stored(row, spans))


def _exchange(session: Session, row: WideRow, request: Forward, now: int) -> Change | None:
    (span,) = request.acknowledge.spans
    change = Change(session, request.acknowledge.shard)
    pending = removal.take_pending(change, row, span.bundle_id, span.first, now)
    if pending is None:
        return None
    change.move([pending])
    known = row.heads(bundle.id for bundle in request.append.bundles)
    for bundle in request.append.bundles:
        if bundle.id not in known:
            _add(change, bundle)
    return change


def _end(change: Change, row: WideRow, cuts: Sequence[Cut], request: Acknowledge, now: int) -> None:
    slices = [named for each in cuts for named in each.named]
    if request.moved:
        change.move(slices)
    if request.keep:
        finishing.keep(change, row, slices, _carried(row, cuts), now)
    else:
        finishing.finish(change, row, slices)


def _carried(row: WideRow, cuts: Sequence[Cut]) -> dict[bytes, bytes]:
    """Read the data of the inline bundles that are named; raises _Overtaken when others have finished some."""
    leases = (each.lease for each in cuts if any(named.inline for named in each.named))
    carried = carried_bodies(row, leases, (named for each in cuts for named in each.named))
    if carried is None:
        raise _Overtaken
    return carried


def _started(each: Slice, request: Extend) -> Slice:
    if not (request.starts and each.unstarted):
        return each
    return msgspec.structs.replace(each, deliveries=each.deliveries + 1, unstarted=False)


def _released(each: Slice, request: Release) -> Slice:
    deliveries = each.deliveries + each.unstarted - (not request.started)
    again = not (request.started or request.delay or deliveries)
    return msgspec.structs.replace(each, deliveries=deliveries, unstarted=again)


def _add(change: Change, bundle: Bundle) -> None:
    ready = bundles.ready_of(bundle)
    change.store(bundle.id, Head.of(bundle), bundle.data)
    change.write(ready.key, ready.value)
    if has_due_row(bundle.due, bundle.id):
        change.write(due_row_of(bundle.due, bundle.id), b"")


def _settle(
    session: Session, held: Held, shard: Shard, spans: Sequence[Span], step: _Step, *, complete: bool = False
) -> Fenced:
    """Do the step with the held messages of the spans; return the rest of them.

    With ``complete`` it is done in one change, and only when all of it is held. Else it is done in parts, each small
    enough for the server with the bodies that it writes.
    """
    if not spans:
        return Fenced()
    missing: list[Span] = []
    is_done = False
    with session.lock(str(shard)):
        for some in [spans] if complete else _parts(spans):
            with after_a_write() if is_done else nullcontext():
                was_done, rest = _settle_part(session, held, shard, some, step, complete=complete)
            is_done = is_done or was_done
            missing += rest
    if not missing:
        return Fenced()
    row = WideRow(session, str(shard))
    with after_a_write() if is_done else nullcontext():
        return became(row, missing, lambda: _stored(row, missing))


def _parts(spans: Sequence[Span]) -> Iterator[Sequence[Span]]:
    return (spans[start : start + _MOST_SPANS] for start in range(0, len(spans), _MOST_SPANS))


def _settle_part(
    session: Session, held: Held, shard: Shard, spans: Sequence[Span], step: _Step, *, complete: bool
) -> tuple[bool, list[Span]]:
    """Do the step in one change; return whether it was done, and the parts of the spans that are not held.

    Slices that this client holds are not read at first: that they are still so is a condition of the change.
    """
    row = WideRow(session, str(shard))
    tokens = {span.token for span in spans}
    known = held.of(str(shard), tokens)
    held.forget(str(shard), tokens)
    missing: list[Span] = []
    for _ in attempts(shard):
        leases = known if known is not None else row.leases(tokens)
        cuts, missing = cut(leases, spans)
        if known is not None and missing:
            known = None
            continue
        if missing and (complete or not cuts):
            break
        change = Change(session, shard)
        for each in cuts:
            change.retire(each.lease)
            if each.rest:
                change.hold(msgspec.structs.replace(each.lease, slices=each.rest))
        known = None
        with suppress(_Overtaken):
            step(change, cuts)
            if change.apply():
                _remember(held, shard, leases, cuts, change)
                return True, missing
    return False, missing


def _remember(
    held: Held, shard: Shard, before: Sequence[LeaseRow], cuts: Sequence[Cut], change: Change
) -> None:
    """Note what there is under each token after the change."""
    changed = {each.lease.key for each in cuts}
    after = [each for each in before if each.key not in changed] + [
        each for each in change.leases if each.held
    ]
    for token in {each.id for each in before}:
        held.put(str(shard), token, [each for each in after if each.id == token])


def _number(parts: Sequence[Cut]) -> int:
    """Return a number for a new lease row: that of one which is used up, or else a random one."""
    used_up = [each.lease.number for each in parts if not each.rest]
    return used_up[0] if used_up else int.from_bytes(os.urandom(4), "big") >> 1


def _stored(row: WideRow, missing: Sequence[Span]) -> list[tuple[bytes, Range]]:
    """Read which messages there are of the spans' bundles, held or not."""
    heads = row.heads(span.bundle_id for span in missing)
    named = {span.bundle_id for span in missing}
    slices = [each for lease in row.every_lease() for each in lease.slices if each.bundle_id in named]
    for bundle in heads.values():
        slices += [ready.slice for ready in row.ready_of(bundle.id, bundle.head)]
    return [(each.bundle_id, (each.first, each.end)) for each in slices]
