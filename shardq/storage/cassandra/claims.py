"""Taking slices under a claim's token: one look at the shard, one conditional batch."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import msgspec
from cassandra import ConsistencyLevel

from shardq.storage.cassandra.bundles import HEAD_START
from shardq.storage.cassandra.changing import Change
from shardq.storage.cassandra.faults import after_a_write
from shardq.storage.cassandra.lease_rows import Held, Holding
from shardq.storage.cassandra.read_cursors import Sight, Sights
from shardq.storage.cassandra.rows import BundleRow, ControlRow, Ready, Slice, alarm_of, has_alarm
from shardq.storage.cassandra.session import Session
from shardq.storage.cassandra.shard_rows import WideRow
from shardq.storage.clocks import ServerClock
from shardq.storage.requests import Claim, Claimed, ClaimedSlice

__all__ = ["claim"]

_log = logging.getLogger(__name__)

_ATTEMPTS = 4
_CARRIED_BYTES = 1 << 20  # of light bundles that one claim moves
_ROWS = 1000  # rows that one claim touches at most
_LAPSED = 200  # holdings that one claim looks at
_PRIORITIES = 10
_FRESH_TURN = HEAD_START - 2_000_000  # what was sent since an older turn may count as written after it

_Place: TypeAlias = tuple[int, int, bytes, int]


class _Candidate(msgspec.Struct, frozen=True):
    """A slice that may be taken, with the row that it is in."""

    place: _Place
    slice: Slice
    source: Ready | Holding


class _Sighted(msgspec.Struct, frozen=True):
    """What a look at the shard found."""

    control: ControlRow
    held: Sequence[Holding]
    lapsed: Sequence[Holding]
    candidates: Iterator[_Candidate]
    all_lapsed: bool


class _Chosen(msgspec.Struct, frozen=True):
    """What to take of it: whole candidates, the last one perhaps in part."""

    pieces: tuple[tuple[_Candidate, Slice], ...]
    done: int  # nothing is left of the priorities before
    from_the_future: bool  # a row was written by a clock that is far ahead


def claim(session: Session, sights: Sights, held: Held, request: Claim, clock: ServerClock) -> Claimed:
    """Take up to the limit of deliverable messages, or again what the token holds."""
    with session.turn(str(request.shard)):
        claimer = _Claimer(session, sights.of(str(request.shard)), request, clock)
        for _ in range(_ATTEMPTS):
            claimed = claimer.attempt()
            if claimed is not None:
                held.put(str(request.shard), request.token, claimer.holdings)
                return claimed
        return Claimed((), clock.now() + request.lease, contended=True)


class _Claimer:
    def __init__(self, session: Session, sight: Sight, request: Claim, clock: ServerClock) -> None:
        self._session, self._sight, self._request, self._clock = session, sight, request, clock
        self._row = WideRow(session, str(request.shard))
        self._rescanned = self._turned = False
        self.holdings: list[Holding] = []  # all that there is under the token

    def attempt(self) -> Claimed | None:
        """Return what was claimed, or None when it has to be tried again."""
        now = self._clock.now()
        sighted = self._look(now)
        if sighted is None:
            return None
        if sighted.held:
            return self._hold_again(sighted.held, now)
        chosen = self._choose(sighted)
        if chosen.from_the_future and not self._turned:
            self._renew_turn(sighted.control)
            return self.attempt()
        if chosen.pieces:
            return self._take(sighted, chosen, now)
        if self._rescanned:
            if not chosen.from_the_future:
                self._sight.consumed(self._sight.places_after((), _PRIORITIES, now), 0)
            return Claimed((), now + self._request.lease)
        self._sight.forget()
        return self.attempt()

    def _look(self, now: int) -> _Sighted | None:
        """Read the shard from where it was left; None when something came late since, or others took something."""
        sight = self._sight
        if sight.is_old(now):
            control = self._row.settled_control()
            sight.rescan(control.control, control.taken, now)
            self._rescanned = True
            if control.turn_at < now - _FRESH_TURN and not self._turned:
                self._renew_turn(control)
        start_own = self._row.start_own(self._request.token)
        alarms = self._row.start_alarms(sight.alarm_at, now, _LAPSED)
        ready = [
            self._row.ready(priorities, place, now, page=sight.page)
            for place, priorities in sight.groups().items()
        ]
        control, own = start_own()
        if (control.control.late, control.taken) != (sight.late, sight.taken):
            sight.forget()
            return None
        due = list(alarms())
        lapsed = [each for each in self._row.holdings(alarm[0] for alarm in due) if each.due <= now]
        sight.pass_alarms(due[0][2] if due else now, now)
        held = [each for each in own if each.held]
        streams = [map(_of_ready, answer()) for answer in ready]
        candidates = heapq.merge(sorted(_of_holdings(lapsed), key=_place), *streams, key=_place)
        return _Sighted(control, held, lapsed, candidates, len(due) < _LAPSED)

    def _choose(self, sighted: _Sighted) -> _Chosen:
        pieces: list[tuple[_Candidate, Slice]] = []
        wanted, room, from_the_future = self._request.limit, _CARRIED_BYTES, False
        for candidate in sighted.candidates:
            if isinstance(candidate.source, Ready) and candidate.source.written_at > sighted.control.turn_at:
                from_the_future = True
                continue
            count = min(candidate.slice.count, wanted)
            pieces.append(
                (candidate, candidate.slice.part(candidate.slice.first, candidate.slice.first + count))
            )
            wanted -= count
            room -= len(candidate.source.data or b"") if isinstance(candidate.source, Ready) else 0
            if wanted <= 0 or room <= 0 or len(pieces) == _ROWS:
                return _Chosen(tuple(pieces), candidate.slice.priority, from_the_future)
        return _Chosen(tuple(pieces), _PRIORITIES, from_the_future)

    def _take(self, sighted: _Sighted, chosen: _Chosen, now: int) -> Claimed | None:
        change = Change(self._session, self._request.shard)
        started = self._request.started
        slices = tuple(
            msgspec.structs.replace(piece, deliveries=piece.deliveries + started, unstarted=not started)
            for _, piece in chosen.pieces
        )
        until = now + self._request.lease
        carried = self._carried(chosen)
        holding = Holding(self._request.token, 0, until, True, slices)
        change.hold(holding, carried)
        ready = [candidate.source for candidate, _ in chosen.pieces if isinstance(candidate.source, Ready)]
        token = change.take(ready, self._sight.taken) if ready else self._sight.taken
        taken = list(self._retire_ready(change, chosen))
        self._retire_lapsed(change, chosen)
        places = self._sight.places_after(taken, chosen.done, now)
        raised = None
        if not chosen.from_the_future:
            raised = self._sight.raised(sighted.control.control, places, len(taken), now)
        if raised:
            change.set_control(raised, sighted.control.seen)
        bundles = self._row.start_bundles(piece.bundle_id for piece in slices if not piece.light)
        if not change.apply():
            self._sight.forget()
            return None
        self._sight.taken, self.holdings = token, [holding]
        if not chosen.from_the_future:
            self._sight.consumed(places, len(taken))
        if raised:
            self._sight.passed = 0
        self._sight.page = max(32, min(_ROWS, len(taken) * 5 // 4 + 1))
        with after_a_write():
            return Claimed(self._with_bundles(slices, bundles(), carried), until)

    def _carried(self, chosen: _Chosen) -> dict[bytes, bytes]:
        """The data of the light bundles among what was chosen."""
        sources = [candidate.source for candidate, _ in chosen.pieces]
        carried = {
            source.key.id: source.data
            for source in sources
            if isinstance(source, Ready) and source.data is not None
        }
        if any(
            candidate.slice.light and isinstance(candidate.source, Holding) for candidate, _ in chosen.pieces
        ):
            carried |= self._row.carried(source for source in sources if isinstance(source, Holding))
        return carried

    def _retire_ready(self, change: Change, chosen: _Chosen) -> Iterator[Ready]:
        for candidate, piece in chosen.pieces:
            source = candidate.source
            if not isinstance(source, Ready):
                continue
            if piece.count < source.count:
                change.offer(source.part(piece.end, candidate.slice.end))
            if has_alarm(source.key.due, source.key.id):
                change.delete(alarm_of(source.key.due, source.key.id))
            yield source.part(piece.first, piece.end)

    def _retire_lapsed(self, change: Change, chosen: _Chosen) -> None:
        taken: dict[tuple[bytes, int], list[Slice]] = {}
        sources: dict[tuple[bytes, int], Holding] = {}
        for candidate, piece in chosen.pieces:
            source = candidate.source
            if isinstance(source, Holding):
                sources[source.id, source.number] = source
                taken.setdefault((source.id, source.number), []).append(piece)
        for name, source in sources.items():
            rest = tuple(_rest(source.slices, taken[name]))
            change.retire(source)
            if rest:
                change.hold(msgspec.structs.replace(source, slices=rest))

    def _hold_again(self, held: Sequence[Holding], now: int) -> Claimed | None:
        until = now + self._request.lease
        slices = tuple(sorted((s for each in held for s in each.slices), key=_rank))
        bundles = self._row.start_bundles(each.bundle_id for each in slices if not each.light)
        carried = self._row.carried(held)
        change = Change(self._session, self._request.shard)
        for each in held:
            change.retire(each)
        holding = Holding(self._request.token, held[0].number, until, True, slices)
        change.hold(holding, carried)
        if not change.apply():
            return None
        self.holdings = [holding]
        with after_a_write():
            return Claimed(self._with_bundles(slices, bundles(), carried), until)

    def _renew_turn(self, control: ControlRow) -> None:
        """Once a claim: afterwards a row that still counts as written later comes from a clock that is ahead."""
        self._turned = True
        change = Change(self._session, self._request.shard)
        change.expect_control(control.seen)
        change.apply()

    def _with_bundles(
        self, slices: Sequence[Slice], bundles: dict[bytes, BundleRow], carried: dict[bytes, bytes]
    ) -> tuple[ClaimedSlice, ...]:
        """Put the bundles to their slices; one that a replica missed is read from all of them."""
        missing = {each.bundle_id for each in slices if not each.light} - bundles.keys()
        if missing:
            bundles = bundles | self._row.start_bundles(missing, consistency=ConsistencyLevel.ALL)()
        return tuple(
            self._claimed(each, bundles, carried) for each in slices if self._is_there(each, bundles)
        )

    def _is_there(self, each: Slice, bundles: dict[bytes, BundleRow]) -> bool:
        there = each.light or each.bundle_id in bundles
        if not there:
            text = "shard %s has no bundle %s: it was removed meanwhile"
            _log.warning(text, self._request.shard, each.bundle_id.hex())
        return there

    def _claimed(
        self, each: Slice, bundles: dict[bytes, BundleRow], carried: dict[bytes, bytes]
    ) -> ClaimedSlice:
        bundle = each.bundle(carried[each.bundle_id]) if each.light else bundles[each.bundle_id].bundle
        return ClaimedSlice(bundle, each.first, each.count, each.deliveries + each.unstarted)


def _of_ready(ready: Ready) -> _Candidate:
    return _Candidate(ready.place, ready.slice, ready)


def _of_holdings(lapsed: Iterable[Holding]) -> Iterator[_Candidate]:
    for holding in lapsed:
        for each in holding.slices:
            yield _Candidate((each.priority, holding.due_of(each), each.bundle_id, each.first), each, holding)


def _rest(slices: Iterable[Slice], taken: Iterable[Slice]) -> Iterator[Slice]:
    """Return what is left when beginnings of some of the slices are taken."""
    ends = {(piece.bundle_id, piece.first): piece.end for piece in taken}
    for each in slices:
        end = ends.get((each.bundle_id, each.first), each.first)
        if end < each.end:
            yield each.part(end, each.end)


def _place(candidate: _Candidate) -> _Place:
    return candidate.place


def _rank(each: Slice) -> tuple[int, bytes, int]:
    return each.priority, each.bundle_id, each.first
