"""Taking slices under a claim's token: one read of the shard, one conditional batch."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TypeAlias

import msgspec

from shardq.storage.cassandra.bundles import HEAD_START, carried_bodies, is_torn, with_bundles
from shardq.storage.cassandra.changing import Change
from shardq.storage.cassandra.lease_rows import Held, LeaseRow
from shardq.storage.cassandra.read_cursors import FEW_ROWS, ReadCursor, ReadCursors
from shardq.storage.cassandra.rows import ControlRow, Ready, Slice, due_row_of, has_due_row
from shardq.storage.cassandra.session import Session
from shardq.storage.cassandra.shard_rows import WideRow
from shardq.storage.clocks import ServerClock
from shardq.storage.read_cursors import PRIORITIES
from shardq.storage.requests import Claim, Claimed
from shardq.storage.writing import after_a_write

__all__ = ["claim"]

_ATTEMPTS = 4
_CARRIED_BYTES = 1 << 20  # of inline bundles that one claim moves
_ROWS = 1000  # rows that one claim touches at most
_LAPSED = 200  # lease rows that one claim reads
_FRESH_TURN = HEAD_START - 2_000_000  # what was sent since an older turn may count as written after it

_ClaimOrder: TypeAlias = tuple[int, int, bytes, int]


class _Candidate(msgspec.Struct, frozen=True):
    """A slice that may be taken, with the row that it is in."""

    place: _ClaimOrder
    slice: Slice
    source: Ready | LeaseRow


class _Found(msgspec.Struct, frozen=True):
    """The result of a read of the shard."""

    control: ControlRow
    held: Sequence[LeaseRow]
    lapsed: Sequence[LeaseRow]
    candidates: Iterator[_Candidate]
    empty: Sequence[int]  # priorities in which nothing is ready


class _Chosen(msgspec.Struct, frozen=True):
    """The slices to take: whole candidates, the last one perhaps in part."""

    pieces: tuple[tuple[_Candidate, Slice], ...]
    done: int  # nothing is left of the priorities before
    from_the_future: bool  # a row was written by a clock that is far ahead


def claim(session: Session, cursors: ReadCursors, held: Held, request: Claim, clock: ServerClock) -> Claimed:
    """Take up to the limit of deliverable messages, or again those that the token holds."""
    with session.lock(str(request.shard)):
        cursor = cursors.of(str(request.shard))
        claimer = _Claimer(session, cursor, request, clock)
        for _ in range(_ATTEMPTS):
            claimed = claimer.attempt()
            if claimed is not None:
                cursors.page = cursor.page
                held.put(str(request.shard), request.token, claimer.leases)
                return claimed
        return Claimed((), clock.now() + request.lease, contended=True)


class _Claimer:
    def __init__(self, session: Session, cursor: ReadCursor, request: Claim, clock: ServerClock) -> None:
        self._session, self._cursor, self._request, self._clock = session, cursor, request, clock
        self._row = WideRow(session, str(request.shard))
        self._rescanned = self._turned = False
        self.leases: list[LeaseRow] = []  # all that there is under the token

    def attempt(self) -> Claimed | None:
        """Return the claimed messages, or None when it has to be tried again."""
        now = self._clock.now()
        found = self.survey(now)
        if found is None:
            return None
        if found.held:
            return self._hold_again(found.held, now)
        chosen = self._choose(found)
        if chosen.from_the_future and not self._turned:
            self._renew_turn(found.control)
            return self.attempt()
        if chosen.pieces:
            return self.take(found, chosen, now)
        if self._rescanned:
            if not chosen.from_the_future:
                self._cursor.consumed(self._cursor.places_after((), len(PRIORITIES), now), 0)
            return Claimed((), now + self._request.lease)
        self._cursor.forget()
        return self.attempt()

    def survey(self, now: int) -> _Found | None:
        """Read the shard from where it was left; None when something came late since, or others took something."""
        cursor = self._cursor
        if cursor.is_old(now):
            control = self._row.settled_control()
            cursor.rescan(control.control, control.taken, now)
            self._rescanned = True
            if control.turn_at < now - _FRESH_TURN and not self._turned:
                self._renew_turn(control)
        start_own = self._row.start_own(self._request.token)
        due_rows = self._row.start_due_rows(cursor.due_from, now, _LAPSED)
        ready = [
            (priorities, self._row.ready(priorities, place, now, page=cursor.page))
            for place, priorities in cursor.groups().items()
        ]
        control, own = start_own()
        if (control.control.late, control.taken) != (cursor.late, cursor.taken):
            cursor.forget()
            return None
        due = list(due_rows())
        lapsed = [each for each in self._row.leases(due_row[0] for due_row in due) if each.due <= now]
        cursor.pass_due_rows(due[0][2] if due else now, now)
        held = [each for each in own if each.held]
        streams: list[Iterable[_Candidate]] = [sorted(_of_leases(lapsed), key=_place)]
        empty: list[int] = []
        for priorities, answer in ready:
            rows = answer()
            first = list(islice(rows, 1))
            empty += [each for each in priorities if not first or each < first[0].key.priority]
            streams.append(map(_of_ready, chain(first, rows)))
        return _Found(control, held, lapsed, heapq.merge(*streams, key=_place), empty)

    def _choose(self, found: _Found) -> _Chosen:
        pieces: list[tuple[_Candidate, Slice]] = []
        wanted, remaining, from_the_future = self._request.limit, _CARRIED_BYTES, False
        for candidate in found.candidates:
            source, piece = candidate.source, candidate.slice
            if isinstance(source, Ready):
                if source.written_at > found.control.turn_at:
                    from_the_future = True
                    continue
                if is_torn(self._row, source):
                    continue
                remaining -= len(source.data or b"")
            if piece.count > wanted:
                piece = piece.part(piece.first, piece.first + wanted)
            pieces.append((candidate, piece))
            wanted -= piece.count
            if wanted <= 0 or remaining <= 0 or len(pieces) == _ROWS:
                return _Chosen(tuple(pieces), candidate.slice.priority, from_the_future)
        return _Chosen(tuple(pieces), len(PRIORITIES), from_the_future)

    def take(self, found: _Found, chosen: _Chosen, now: int) -> Claimed | None:
        change = Change(self._session, self._request.shard)
        started = self._request.started
        slices = tuple(
            [
                msgspec.structs.replace(piece, deliveries=piece.deliveries + started, unstarted=not started)
                for _, piece in chosen.pieces
            ]
        )
        until = now + self._request.lease
        carried = self._carried(chosen)
        if carried is None:
            self._cursor.forget()
            return None
        lease = LeaseRow(self._request.token, 0, until, True, slices)
        change.hold(lease, carried)
        ready = [candidate.source for candidate, _ in chosen.pieces if isinstance(candidate.source, Ready)]
        token = change.take(ready, self._cursor.taken) if ready else self._cursor.taken
        taken = list(self._retire_ready(change, chosen))
        self._retire_lapsed(change, chosen)
        places = self._cursor.places_after(taken, chosen.done, now, found.empty)
        raised = None
        if not chosen.from_the_future:
            raised = self._cursor.raised(found.control.control, places, len(taken), now)
        if raised:
            change.set_control(raised, found.control.seen)
        bundles = self._row.start_bundles(piece.bundle_id for piece in slices if not piece.inline)
        if not change.apply():
            self._cursor.forget()
            return None
        self._cursor.taken, self.leases = token, [lease]
        if not chosen.from_the_future:
            self._cursor.consumed(places, len(taken))
        if raised:
            self._cursor.passed = 0
        self._cursor.page = max(FEW_ROWS, len(taken) + 1)
        with after_a_write():
            return Claimed(with_bundles(self._row, slices, bundles(), carried), until)

    def _carried(self, chosen: _Chosen) -> dict[bytes, bytes] | None:
        """Return the data of the inline bundles among the chosen ones; None when it is not all there."""
        carried: dict[bytes, bytes] = {}
        lapsed: list[tuple[LeaseRow, Slice]] = []
        for candidate, piece in chosen.pieces:
            source = candidate.source
            if isinstance(source, LeaseRow):
                lapsed += [(source, piece)] if piece.inline else []
            elif source.data is not None:
                carried[source.key.id] = source.data
        again = carried_bodies(self._row, (lease for lease, _ in lapsed), (piece for _, piece in lapsed))
        return None if again is None else carried | again

    def _retire_ready(self, change: Change, chosen: _Chosen) -> Iterator[Ready]:
        for candidate, piece in chosen.pieces:
            source = candidate.source
            if not isinstance(source, Ready):
                continue
            taken = source
            if piece.count < source.count:
                change.offer(source.part(piece.end, candidate.slice.end))
                taken = source.part(piece.first, piece.end)
            if has_due_row(source.key.due, source.key.id):
                change.delete(due_row_of(source.key.due, source.key.id))
            yield taken

    def _retire_lapsed(self, change: Change, chosen: _Chosen) -> None:
        taken: dict[tuple[bytes, int], list[Slice]] = {}
        sources: dict[tuple[bytes, int], LeaseRow] = {}
        for candidate, piece in chosen.pieces:
            source = candidate.source
            if isinstance(source, LeaseRow):
                sources[source.id, source.number] = source
                taken.setdefault((source.id, source.number), []).append(piece)
        for name, source in sources.items():
            rest = tuple(_rest(source.slices, taken[name]))
            change.retire(source)
            if rest:
                change.hold(msgspec.structs.replace(source, slices=rest))

    def _hold_again(self, held: Sequence[LeaseRow], now: int) -> Claimed | None:
        until = now + self._request.lease
        slices = tuple(sorted((s for each in held for s in each.slices), key=_rank))
        bundles = self._row.start_bundles(each.bundle_id for each in slices if not each.inline)
        carried = carried_bodies(self._row, held, slices)
        if carried is None:
            self._cursor.forget()
            return None
        change = Change(self._session, self._request.shard)
        for each in held:
            change.retire(each)
        lease = LeaseRow(self._request.token, held[0].number, until, True, slices)
        change.hold(lease, carried)
        if not change.apply():
            return None
        self.leases = [lease]
        with after_a_write():
            return Claimed(with_bundles(self._row, slices, bundles(), carried), until)

    def _renew_turn(self, control: ControlRow) -> None:
        """Renew the turn once a claim: from then on a row that seems to be written later comes from a clock ahead."""
        self._turned = True
        change = Change(self._session, self._request.shard)
        change.expect_control(control.seen)
        change.apply()


def _of_ready(ready: Ready) -> _Candidate:
    return _Candidate(ready.place, ready.slice, ready)


def _of_leases(lapsed: Iterable[LeaseRow]) -> Iterator[_Candidate]:
    for lease in lapsed:
        for each in lease.slices:
            yield _Candidate((each.priority, lease.due_of(each), each.bundle_id, each.first), each, lease)


def _rest(slices: Iterable[Slice], taken: Iterable[Slice]) -> Iterator[Slice]:
    """Return what is left when beginnings of some of the slices are taken."""
    ends = {(piece.bundle_id, piece.first): piece.end for piece in taken}
    for each in slices:
        end = ends.get((each.bundle_id, each.first), each.first)
        if end < each.end:
            yield each.part(end, each.end)


def _place(candidate: _Candidate) -> _ClaimOrder:
    return candidate.place


def _rank(each: Slice) -> tuple[int, bytes, int]:
    return each.priority, each.bundle_id, each.first
