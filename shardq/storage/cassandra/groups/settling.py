"""The operations of the holder of a claim on slices of groups: finish, extend, release, forward."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from itertools import accumulate, dropwhile
from typing import TypeAlias

import msgspec

from shardq.base.outgoing_message import Bundle
from shardq.base.shard import Shard
from shardq.errors import UnsupportedByStore
from shardq.storage.cassandra import directory, finishing
from shardq.storage.cassandra.changing import attempts
from shardq.storage.cassandra.groups.changing import Draft, KnownGroups, Moment
from shardq.storage.cassandra.groups.reading import GroupReader, GroupRow, Overtaken
from shardq.storage.cassandra.groups.rows import Member, group_id, new_slice
from shardq.storage.cassandra.lease_rows import LeaseRow
from shardq.storage.cassandra.rows import Head, Slice
from shardq.storage.cassandra.session import Session
from shardq.storage.cassandra.slicing import became
from shardq.storage.requests import Acknowledge, Extend, Fenced, Forward, Release, Span
from shardq.storage.slicing import Range, gaps, joined, overlap, pending_in, uncovered
from shardq.storage.writing import after_a_write

__all__ = ["acknowledge", "extend", "forward", "release"]


class _Cut(msgspec.Struct, frozen=True):
    """The held slices of a group, cut at the borders of the request's spans."""

    group: bytes
    pieces: tuple[tuple[Member, bool], ...]  # True: it is named
    waiting: tuple[Member, ...]

    @property
    def named(self) -> list[Slice]:
        return [each.slice for each, is_named in self.pieces if is_named]

    @property
    def rest(self) -> list[Member]:
        return [each for each, is_named in self.pieces if not is_named]

    @property
    def before(self) -> list[Member]:
        """The held slices before all named ones."""
        first = next(number for number, (_, is_named) in enumerate(self.pieces) if is_named)
        return [each for each, _ in self.pieces[:first]]

    @property
    def end_of_named(self) -> int:
        """How many pieces come before the first one that is not named and has a named one before it."""
        behind = dropwhile(lambda each: each[1], self.pieces[len(self.before) :])
        return len(self.pieces) - len(list(behind))


_Step: TypeAlias = Callable[[Draft, Sequence[_Cut]], None]
_MOST_SLICES = 4_000  # in a change of several groups; the driver takes 65,535 statements


def acknowledge(session: Session, known: KnownGroups, request: Acknowledge, now: Moment) -> Fenced:
    """Finish the slices, and let what follows them go; with ``keep`` note them in the history."""

    def step(draft: Draft, cuts: Sequence[_Cut]) -> None:
        _end(draft, cuts, request)
        for each in cuts:
            draft.set(each.group, [*each.rest, *each.waiting], len(each.rest))

    return _settle(session, known, request.shard, request.spans, now, step)


def extend(session: Session, known: KnownGroups, request: Extend, now: Moment) -> Fenced:
    """Hold the slices until now + lease; with ``blocks`` without end, and release the held ones behind them."""

    def extended(each: Member, until: int) -> Member:
        one = each.slice
        if request.starts and one.unstarted:
            one = msgspec.structs.replace(one, deliveries=one.deliveries + 1, unstarted=False)
        return Member(one, until if request.shorten else max(until, each.due), each.place)

    def step(draft: Draft, cuts: Sequence[_Cut]) -> None:
        until = request.until(draft.now)
        for each in cuts:
            count = each.end_of_named if request.blocks else len(each.pieces)
            held = [extended(one, until) if is_named else one for one, is_named in each.pieces[:count]]
            back = [_released(one, draft.now, 0, started=False) for one, _ in each.pieces[count:]]
            draft.set(each.group, [*held, *back, *each.waiting], count)

    return _settle(session, known, request.shard, request.spans, now, step)


def release(session: Session, known: KnownGroups, request: Release, now: Moment) -> Fenced:
    """Release the slices, and uncounted the held ones behind them."""

    def step(draft: Draft, cuts: Sequence[_Cut]) -> None:
        for each in cuts:
            back = [
                _released(one, draft.now, request.delay if is_named else 0, request.started and is_named)
                for one, is_named in each.pieces[len(each.before) :]
            ]
            draft.set(each.group, [*each.before, *back, *each.waiting], len(each.before))

    return _settle(session, known, request.shard, request.spans, now, step)


def forward(session: Session, known: KnownGroups, request: Forward, now: Moment) -> Fenced:
    """Acknowledge and append, or neither when some message is lost or gone; within one shard."""
    shard = request.acknowledge.shard
    if request.append.shard != shard:
        raise UnsupportedByStore(
            f"Cassandra cannot forward from shard {shard} to {request.append.shard} in one step: send, then ack"
        )
    if pending_in(request.acknowledge) is not None:
        raise UnsupportedByStore(
            f"Cassandra cannot exchange a message of a group in shard {shard} that nobody holds: receive it, and "
            "release it with another body"
        )
    directory.enter(session, shard)
    moved = msgspec.structs.replace(request.acknowledge, moved=True)

    def step(draft: Draft, cuts: Sequence[_Cut]) -> None:
        stored = draft.reader.known(bundle.id for bundle in request.append.bundles)
        new = [bundle for bundle in request.append.bundles if bundle.id not in stored]
        _end(draft, cuts, moved)
        placed: set[bytes] = set()
        for each in cuts:
            if request.in_place:
                placed |= _replace(draft, each, _replacements(request, new))
            else:
                draft.set(each.group, [*each.rest, *each.waiting], len(each.rest))
        draft.read(bundle.group for bundle in new)
        for bundle in new:
            if bundle.id not in placed:
                draft.add(bundle)

    return _settle(session, known, shard, request.acknowledge.spans, now, step, complete=True)


def _end(draft: Draft, cuts: Sequence[_Cut], request: Acknowledge) -> None:
    slices = [one for each in cuts for one in each.named]
    if request.moved:
        draft.change.move(slices)
    if request.keep:
        finishing.keep(draft.change, draft.reader.row, slices, {}, draft.now)
    else:
        finishing.finish(draft.change, draft.reader.row, slices)


def _released(each: Member, now: int, delay: int, started: bool) -> Member:
    """Return the slice without a holder.

    One that was never delivered and has no delay takes its old place in the order.
    """
    deliveries = each.slice.deliveries + each.slice.unstarted - (not started)
    one = msgspec.structs.replace(each.slice, deliveries=deliveries, unstarted=False)
    again = not (started or delay or deliveries)
    return Member(one, min(one.due, now) if again else now + delay, each.place)


def _replacements(request: Forward, new: Sequence[Bundle]) -> dict[tuple[bytes, int], Bundle]:
    """Return the bundles by what they replace: bundle and position."""
    pairs = zip(request.acknowledge.spans, request.append.bundles, strict=False)
    return {(span.bundle_id, span.first): bundle for span, bundle in pairs if bundle in new}


def _replace(draft: Draft, cut: _Cut, instead: Mapping[tuple[bytes, int], Bundle]) -> set[bytes]:
    """Let bundles take the places of the named slices, and release the held ones behind; returns their ids."""
    members = cut.before
    placed: set[bytes] = set()
    for each, is_named in cut.pieces[len(members) :]:
        if not is_named:
            members.append(_released(each, draft.now, 0, started=False))
            continue
        for first in range(each.slice.first, each.slice.end):  # of several spans, where they are neighbours
            bundle = instead.get((each.slice.bundle_id, first))
            if bundle is not None and group_id(bundle.group) == cut.group:
                place = each.place + first - each.slice.first
                draft.change.store_grouped(bundle.id, Head.of(bundle, place), bundle.data)
                members.append(Member(new_slice(bundle), bundle.due, place))
                placed.add(bundle.id)
    draft.set(cut.group, [*members, *cut.waiting], len(cut.before))
    return placed


def _settle(
    session: Session,
    known: KnownGroups,
    shard: Shard,
    spans: Sequence[Span],
    now: Moment,
    step: _Step,
    *,
    complete: bool = False,
) -> Fenced:
    """Do the step with the held messages of the spans; return the rest of them.

    With ``complete`` it is done only when all of it is held. It is one change, unless it is too large, or others
    change some of the groups all the time. Then it is done with fewer groups after each other.
    """
    settling = _Settling(session, known, shard, now, step, complete)
    with session.lock(str(shard)):
        while spans:
            with after_a_write() if settling.has_begun else nullcontext():
                spans = settling.settle_some(spans)
    reader, missing = settling.reader, settling.missing
    if not missing:
        return Fenced()
    with after_a_write() if settling.has_begun else nullcontext():
        return became(reader.row, missing, lambda: _stored(reader, missing))


class _Settling:
    def __init__(
        self, session: Session, known: KnownGroups, shard: Shard, now: Moment, step: _Step, complete: bool
    ) -> None:
        self._session, self._known, self._shard, self._now = session, known, shard, now
        self._step, self._complete = step, complete
        self._most = sys.maxsize  # groups at once
        self.reader = GroupReader(session, shard)
        self.missing: list[Span] = []
        self.has_begun = False

    def settle_some(self, spans: Sequence[Span]) -> list[Span]:
        """Do the step with the held slices of the spans, in one group at least; return the spans that are left.

        Slices that this client holds are not read at first: that they are still so is a condition of the change.
        """
        remembered = self._known.take(str(self._shard), {span.token for span in spans})
        for _ in attempts(self._shard):
            if remembered is not None:
                rows, leases = remembered
            else:
                rows, leases = self.reader.of_bundles(span.bundle_id for span in spans), {}
            cuts, missing = _cut(rows, spans)
            if missing and remembered is not None:
                remembered = None
                continue
            if missing and (self._complete or not cuts):
                break
            totals = list(accumulate(len(each.pieces) for each in cuts))
            fits = len(cuts) if self._complete else max(bisect_right(totals, _MOST_SLICES), 1)
            part = cuts[: min(self._most, fits)]
            if self._apply(rows, leases.values(), part):
                if len(part) == len(cuts):
                    break
                return self._left(spans, part, missing)
            if remembered is None and not self._complete:
                self._most = max(len(part) >> 1, 1)
            remembered = None
        self.missing += missing
        return []

    def _apply(
        self, rows: Mapping[bytes, GroupRow], leases: Iterable[LeaseRow], cuts: Sequence[_Cut]
    ) -> bool:
        draft = Draft(self._session, self._shard, rows, self._now, leases)
        try:
            self._step(draft, cuts)
        except Overtaken:
            return False
        if not draft.apply():
            return False
        self._known.put(str(self._shard), {**rows, **draft.written}, draft.leases)
        self.has_begun = True
        return True

    def _left(self, spans: Sequence[Span], done: Sequence[_Cut], missing: Sequence[Span]) -> list[Span]:
        bundles = {one.bundle_id for each in done for one in each.named}
        self.missing += [span for span in missing if span.bundle_id in bundles]
        return [span for span in spans if span.bundle_id not in bundles]


def _cut(rows: Mapping[bytes, GroupRow], spans: Sequence[Span]) -> tuple[list[_Cut], list[Span]]:
    """Cut held slices at the borders of the spans; return them, and the parts of spans that are not held."""
    wanted: dict[tuple[bytes, bytes], list[Range]] = {}
    for span in spans:
        wanted.setdefault((span.token, span.bundle_id), []).append((span.first, span.first + span.count))
    held: dict[tuple[bytes, bytes], list[Range]] = {}
    cuts: list[_Cut] = []
    for row_id, row in rows.items():
        pieces: list[tuple[Member, bool]] = []
        for each in row.group.members[: row.group.held]:
            whole, name = (each.slice.first, each.slice.end), (row.group.holder(each), each.slice.bundle_id)
            held.setdefault(name, []).append(whole)
            named = [(part, True) for part in overlap(whole, wanted.get(name, ()))]
            rest = [(part, False) for part in gaps(whole, wanted.get(name, ()))]
            pieces += [(each.part(*part), is_named) for part, is_named in sorted(named + rest)]
        if any(is_named for _, is_named in pieces):
            cuts.append(_Cut(row_id, tuple(pieces), row.group.waiting))
    missing = [
        part for span in spans for part in uncovered(span, joined(held.get((span.token, span.bundle_id), ())))
    ]
    return cuts, missing


def _stored(reader: GroupReader, missing: Sequence[Span]) -> list[tuple[bytes, Range]]:
    """Read which messages there are of the spans' bundles, held or not."""
    heads = reader.row.heads(span.bundle_id for span in missing)
    groups = reader.groups({group_id(each.head.group) for each in heads.values()})
    members = [each for row in groups.values() for each in row.group.members if each.slice.bundle_id in heads]
    for bundle in heads.values():
        row = groups.get(group_id(bundle.head.group))
        members += reader.behind_at(row.group, bundle.head.place) if row else []
    return [(each.slice.bundle_id, (each.slice.first, each.slice.end)) for each in members]
