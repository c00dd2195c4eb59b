"""Taking the first messages of groups under a claim's token: a read of the shard, a read of groups, one batch."""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterator, Sequence
from itertools import islice
from operator import attrgetter, itemgetter

import msgspec

from shardq.base.shard import Shard
from shardq.storage.cassandra.bundles import with_bundles
from shardq.storage.cassandra.groups.changing import Draft, KnownGroups
from shardq.storage.cassandra.groups.reading import (
    Candidate,
    GroupReader,
    GroupRow,
    Overtaken,
    of_lease,
    of_ready_row,
)
from shardq.storage.cassandra.groups.rows import Group, Member, bundle_row, decode_group
from shardq.storage.cassandra.lease_rows import LeaseRow
from shardq.storage.cassandra.read_cursors import ReadCursor, ReadCursors
from shardq.storage.cassandra.rows import BundleRow, ControlRow, CursorPosition, Slice
from shardq.storage.cassandra.session import Session
from shardq.storage.clocks import ServerClock
from shardq.storage.read_cursors import OVERLAP, PRIORITIES
from shardq.storage.requests import Claim, Claimed
from shardq.storage.writing import after_a_write

__all__ = ["claim"]

_ATTEMPTS = 5
# Ready rows that one claim reads, and lease rows that are due; it orders them by their due times.
_FEWEST_FRONTS, _MOST_FRONTS = 32, 200
_GROUPS = 100  # groups that one claim takes from at most
_SPARE = 4  # groups that a claim reads beyond those that it may need, as others may take some meanwhile
_MESSAGES = 1000  # slices that one claim takes at most
_PLACE = itemgetter(0, 1, 2, 3)


class _Found(msgspec.Struct, frozen=True):
    """The result of a read of the shard."""

    now: int  # when it began: messages released since are not in it, so no cursor goes beyond
    control: ControlRow
    own: dict[bytes, GroupRow]
    leases: list[LeaseRow]  # its own ones, and those that are due
    fronts: list[Candidate]  # those with ready rows, in the order of these
    all_fronts: bool  # there are no more
    candidates: list[Candidate]  # in the order of delivery


class _Taken(msgspec.Struct):
    """The slices that are taken of a group."""

    group: Group
    pieces: list[Member]


def claim(
    session: Session, cursors: ReadCursors, known: KnownGroups, request: Claim, clock: ServerClock
) -> Claimed:
    """Take up to the limit of deliverable messages, or again those that the token holds.

    An attempt that fails is repeated as it is, since its request may have been lost. Each further one is at fewer
    groups and messages, which takes less time and meets fewer others.
    """
    shard = str(request.shard)
    with session.lock(shard):
        claimer = _Claimer(session, cursors.of(shard), known, request, clock)
        for attempt in range(_ATTEMPTS):
            smaller = 2 * max(attempt - 1, 0)
            try:
                claimed = claimer.attempt(max(request.limit >> smaller, 1), max(_GROUPS >> smaller, 1))
            except Overtaken:
                continue
            if claimed is not None:
                return claimed
        return Claimed((), clock.now() + request.lease, contended=True)


class _Claimer:
    def __init__(
        self, session: Session, cursor: ReadCursor, known: KnownGroups, request: Claim, clock: ServerClock
    ) -> None:
        self._session, self._cursor, self._known = session, cursor, known
        self._request, self._clock = request, clock
        self._shard: Shard = request.shard
        self._reader = GroupReader(session, request.shard)
        self._rescanned = False
        self._in_vain = False  # True: the content of ready rows about groups may be wrong
        self._fronts = max(_FEWEST_FRONTS, min(request.limit * 5 // 4 + 1, _MOST_FRONTS))

    def attempt(self, limit: int, most: int) -> Claimed | None:
        """Return the claimed messages, of ``most`` groups at most, or None when it has to be tried again."""
        found = self.survey(self._clock.now())
        if found is None:
            return None
        if found.own:
            return self._hold_again(found.own, found.leases)
        if chosen := found.candidates[: min(most, limit + _SPARE)]:
            return self._claim(found, chosen, limit)
        if self._rescanned:
            self._cursor.consumed(self._places(found, set()), 0)
            return Claimed((), found.now + self._request.lease)
        self._cursor.forget()
        return self.attempt(limit, most)

    def _claim(self, found: _Found, chosen: Sequence[Candidate], limit: int) -> Claimed | None:
        groups = self._groups(chosen)
        if any(row.group.token == self._request.token for row in groups.values()):
            return None  # an earlier attempt was carried out since the look
        draft = Draft(self._session, self._shard, groups, self._clock.now, found.leases)
        taken = self._choose(draft, [each.group for each in chosen if each.group in groups], limit)
        return self.take(found, draft, taken) if taken else None

    def _groups(self, chosen: Sequence[Candidate]) -> dict[bytes, GroupRow]:
        """Return the groups by their ready rows, and read the others; all of them after an attempt in vain."""
        with_content = [each for each in chosen if each.value and not self._in_vain]
        self._in_vain = True
        groups = {each.group: GroupRow(decode_group(each.value), each.value) for each in with_content}
        return groups | self._reader.groups(each.group for each in chosen if each.group not in groups)

    def survey(self, now: int) -> _Found | None:
        """Read the shard from where it was left; None when something came late since."""
        cursor, row = self._cursor, self._reader.row
        if cursor.is_old(now):
            control = row.control()
            cursor.rescan(control.control, control.taken, now)
            self._rescanned = True
        start_own = row.start_own(self._request.token)
        start_due_rows = row.start_due_rows(cursor.due_from, now, self._fronts)
        ready = [
            row.start_ready(priorities, place, now, page=self._fronts)
            for place, priorities in cursor.groups().items()
        ]
        control, own = start_own()
        if control.control.late != cursor.late:
            cursor.forget()
            return None
        due_rows = list(start_due_rows())
        cursor.pass_due_rows(due_rows[0][2] if due_rows else now, now)
        rows = heapq.merge(*(each() for each in ready), key=_PLACE)
        fronts = [of_ready_row(*each) for each in islice(rows, self._fronts)]
        lapsed = [lease for lease in row.leases(due_row[0] for due_row in due_rows) if lease.due <= now]
        candidates = [*fronts, *(each for lease in lapsed for each in of_lease(lease))]
        mine = self._reader.groups(group for lease in own for group in lease.groups)
        held = {row_id: row for row_id, row in mine.items() if row.group.held_under(self._request.token)}
        whole = len(fronts) < self._fronts
        candidates.sort(key=attrgetter("rank"))
        return _Found(now, control, held, [*own, *lapsed], fronts, whole, candidates)

    def _choose(self, draft: Draft, groups: Sequence[bytes], wanted: int) -> dict[bytes, _Taken]:
        """Take the first slices of groups; while there is room, what follows them too, as far as it is due."""
        taken: dict[bytes, _Taken] = {}
        for row_id in groups:
            if wanted > 0 and draft.group(row_id).members[0].due <= draft.now:
                taken[row_id] = _Taken(draft.group(row_id), [])
                wanted -= self._add(taken[row_id], wanted, 1, draft.now)
        remaining = _MESSAGES - len(taken)
        for row_id, each in taken.items():
            if wanted <= 0 or remaining <= 0:
                break
            beyond = wanted - sum(member.slice.count for member in each.group.members[len(each.pieces) :])
            if beyond > 0 and each.group.behind and _all_due(each.group, draft.now):
                draft.fill(row_id, min(beyond, remaining))
                each.group = draft.group(row_id)
            before = len(each.pieces)
            wanted -= self._add(each, wanted, before + remaining, draft.now)
            remaining -= len(each.pieces) - before
        return taken

    @staticmethod
    def _add(taken: _Taken, wanted: int, most: int, now: int) -> int:
        """Take the next slices of a group, until ``most`` of them are taken; returns how many messages were added."""
        added = 0
        for number, each in enumerate(taken.group.members[len(taken.pieces) : most], len(taken.pieces)):
            if added >= wanted or (number >= taken.group.held and each.due > now):
                break
            first = each.slice.first
            piece = each.part(first, min(each.slice.end, first + wanted - added))
            taken.pieces.append(piece)
            added += piece.slice.count
        return added

    def take(self, found: _Found, draft: Draft, taken: dict[bytes, _Taken]) -> Claimed | None:
        until = draft.now + self._request.lease
        slices: list[tuple[int, Slice]] = []  # the first ones of groups, then what follows them
        bodies = {each.bundle_id: each.data for each in found.fronts if each.data is not None}
        inline: dict[bytes, BundleRow] = {}
        for row_id, each in taken.items():
            held = [self._held(piece, until) for piece in each.pieces]
            slices += [(int(index > 0), piece.slice) for index, piece in enumerate(held)]
            first = held[0].slice
            if (data := bodies.get(first.bundle_id)) is not None:
                inline[first.bundle_id] = bundle_row(first, each.group.name, data)
            rest = list(_rest(each, draft.now))
            draft.hold(row_id, self._request.token, [*held, *rest], len(held))
        ordered = [each for _, each in sorted(slices, key=lambda each: each[0])]
        places = self._places(found, taken.keys())
        raised = self._cursor.raised(found.control.control, places, len(taken), found.now)
        if raised:
            draft.change.set_control(raised, found.control.seen)
        bundles = self._reader.row.start_bundles(
            each.bundle_id for each in ordered if each.bundle_id not in inline
        )
        if not draft.apply():
            self._cursor.forget()
            return None
        self._cursor.consumed(places, len(taken))
        if raised:
            self._cursor.passed = 0
        self._known.put(str(self._shard), draft.written, draft.leases)
        with after_a_write():
            return Claimed(with_bundles(self._reader.row, ordered, bundles() | inline), until)

    def _held(self, piece: Member, until: int) -> Member:
        started = self._request.started
        deliveries = piece.slice.deliveries + started
        each = msgspec.structs.replace(piece.slice, deliveries=deliveries, unstarted=not started)
        return Member(each, until, piece.place)

    def _places(self, found: _Found, taken: Container[bytes]) -> list[CursorPosition]:
        """Return where to read on, by priority: at the first row that was not taken."""
        places = list(self._cursor.places)
        end: CursorPosition = (found.now - OVERLAP, b"", 0)
        last = len(PRIORITIES) if found.all_fronts else found.fronts[-1].priority
        reached: dict[
            int, tuple[CursorPosition, bool]
        ] = {}  # by priority: the last row, or the first one that was not taken
        for each in found.fronts:
            if not reached.get(each.priority, (end, False))[1]:
                reached[each.priority] = each.place, each.group not in taken
        for priority in PRIORITIES:
            row, is_left = reached.get(priority, (end, False))
            if is_left:
                place = row
            elif priority < last:
                place = end
            elif priority == last:
                place = (*row[:2], row[2] + 1)
            else:
                continue
            places[priority] = max(places[priority], min(place, end))
        return places

    def _hold_again(self, own: dict[bytes, GroupRow], leases: Sequence[LeaseRow]) -> Claimed | None:
        draft = Draft(self._session, self._shard, own, self._clock.now, leases)
        until = draft.now + self._request.lease
        slices: list[Slice] = []
        for row_id, row in own.items():
            group, token = row.group, self._request.token
            slices += [each.slice for each in group.held_under(token)]
            held = [
                Member(each.slice, until, each.place) if group.holder(each) == token else each
                for each in group.members[: group.held]
            ]
            draft.set(row_id, [*held, *group.waiting], len(held))
        bundles = self._reader.row.start_bundles(each.bundle_id for each in slices)
        if not draft.apply():
            return None
        self._known.put(str(self._shard), draft.written, draft.leases)
        with after_a_write():
            return Claimed(with_bundles(self._reader.row, slices, bundles()), until)


def _all_due(group: Group, now: int) -> bool:
    return all(each.due <= now for each in group.waiting)


def _rest(taken: _Taken, now: int) -> Iterator[Member]:
    """Return what is left of a group; what another claim held of it waits from now on."""
    group, last = taken.group, len(taken.pieces) - 1
    for number, each in enumerate(group.members):
        if number < last:
            continue
        end = taken.pieces[last].slice.end
        member = each if number > last else each.part(end, each.slice.end) if end < each.slice.end else None
        if member is None:
            continue
        if number < group.held:
            left = msgspec.structs.replace(member.slice, unstarted=False)
            member = Member(left, now, member.place)
        yield member
