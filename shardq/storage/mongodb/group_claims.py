"""Claims of groups: first bundles are found by a read, as those of other shards.

The next ones are read when they are taken. One transaction takes all of it. A first bundle that is not as the read saw
it is left to others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from msgspec.structs import replace
from pymongo.client_session import ClientSession

from shardq.storage.mongodb.changing import Change
from shardq.storage.mongodb.client import Client
from shardq.storage.mongodb.documents import CHOSEN, FINISHED_AT, PLACE, STAMP, STATE, Row, Slice
from shardq.storage.mongodb.groups import GroupRows, Groups, document_of, in_transaction
from shardq.storage.mongodb.repeated_claims import begin, claimed, held_under, ids_of
from shardq.storage.mongodb.shard_rows import CollectionGone, Statement
from shardq.storage.mongodb.slicing import Piece
from shardq.storage.mongodb.taking import statements_of
from shardq.storage.mongodb.transactions import BRIEF, transact
from shardq.storage.requests import Claim, Claimed, ClaimedSlice

__all__ = ["heads", "take", "take_as_seen"]

_END = 2**62
_AHEAD = 2  # times as many bundles of each group are read as it has to give where all give alike

_Held: TypeAlias = tuple[Row, Slice]  # as it was, and as much of it as is taken


def heads(rows: Iterable[Row]) -> list[Row]:
    """Return first bundles of groups with their first slice alone, as nothing else of them is deliverable."""
    return [replace(row, slices=row.slices[:1]) for row in rows]


def take(client: Client, request: Claim, found: Sequence[Row], now: int) -> Claimed:
    """Take what the groups of these first bundles have, up to the limit; or again those that the token holds.

    Raises Disturbed when others change some of the groups all the time.
    """
    until = now + request.lease
    pieces = _all_that_is_asked_for(request, found)
    if pieces and take_as_seen(client, request, pieces, now):
        return Claimed(tuple(claimed(piece, finished=False) for piece in pieces), until)

    def claim(groups: Groups) -> Claimed:
        stored = groups.read([request.token, *(row.id for row in found)])
        held = held_under(groups.rows, request.token) if request.token in stored else []
        if held:
            return Claimed(_prolong(groups, held, request, until), until)
        first = [stored[row.id] for row in found if row.id in stored and _is_as(stored[row.id], row)]
        return Claimed(_take(groups, request, first, {row.id: row for row in found}, now), until)

    return in_transaction(client, request.shard, claim, BRIEF)


def _all_that_is_asked_for(request: Claim, found: Sequence[Row]) -> list[Piece]:
    """Return as many whole bundles that are not held as the claim may take; none where it may take anything else."""
    pieces: list[Piece] = []
    wanted = request.limit
    for row in found:
        each = row.slices[0]
        if not row.is_whole or each.token is not None or each.count > wanted:
            return []
        pieces.append(Piece(row, each))
        wanted -= each.count
        if not wanted:
            return pieces
    return []


def take_as_seen(client: Client, request: Claim, pieces: Sequence[Piece], now: int) -> bool:
    """Take first bundles without reading them again; False, and nothing is done, unless all are as the look saw them.

    Then nothing behind them matters: there is no room for it, and nothing of it is held. Raises Disturbed.
    """
    if (uuid := client.collections.seen(request.shard)) is None:
        return False
    documents = {document_of(piece.row.group) for piece in pieces}
    touched = Statement({"_id": {"$in": list(documents)}}, {"$inc": {STAMP: 1}})
    statements = [touched, *statements_of(pieces, request, now)]

    def once(transaction: ClientSession) -> tuple[bool, bool]:
        rows = GroupRows(client.session, request.shard, transaction)
        taken = rows.take(begin(request.token, ids_of(pieces)), statements, uuid)
        is_all = taken == len(documents) + len(pieces)
        return is_all, is_all

    try:
        return transact(client.session, request.shard, once, BRIEF)
    except CollectionGone:
        return False


def _prolong(groups: Groups, held: Sequence[Row], request: Claim, until: int) -> tuple[ClaimedSlice, ...]:
    mine = [(row, each) for row in held for each in row.slices if each.token == request.token]
    for row in groups.read(row.id for row in held).values():
        longer = [replace(each, due=until) if each.token == request.token else each for each in row.slices]
        groups.change(row, Change(tuple(longer), row.kept))
    mine.sort(key=lambda piece: piece[0].base + piece[1].first)
    return tuple(ClaimedSlice(row.bundle, each.first, each.count, each.all_deliveries) for row, each in mine)


def _take(
    groups: Groups, request: Claim, first: Sequence[Row], seen: dict[bytes, Row], now: int
) -> tuple[ClaimedSlice, ...]:
    plan = _Plan(request, now)
    for row in first:
        plan.add(row, row.slices[0])
    for row in first:
        if row.slices[0].token is not None:
            remaining = plan.wanted + row.slices[0].count  # which is taken already
            plan.follow(*_held_front(groups.follow(row.group), remaining))
    _fill(groups, [row.group for row in first if row.slices[0].token is None], plan)
    plan.store(groups)
    more = groups.rows.read((row.id for row, _ in plan.taken if row.id not in seen), bodies=True)
    bundles = {key: row.bundle for key, row in (seen | more).items()}
    return tuple(
        ClaimedSlice(bundles[row.id], each.first, each.count, each.deliveries + 1) for row, each in plan.taken
    )


def _is_as(stored: Row, seen: Row) -> bool:
    return all(stored.raw.get(field) == seen.raw.get(field) for field in (*STATE, PLACE))


def _fill(groups: Groups, names: Sequence[str], plan: _Plan) -> None:
    """Take the bundles after first ones that were not held: about as many of each group, then of those with more.

    So what is read is a few times what is taken, however many groups there are and whatever they have.
    """
    read = 1  # of each group: its first bundle
    while plan.wanted > 0 and names:
        read += min(plan.wanted, _AHEAD * plan.wanted // len(names) + 1)
        found = groups.first(names, read)
        names = [
            group
            for group, rows in found.items()
            if plan.follow(rows, _END if len(rows) < read else int(rows[-1].raw[PLACE]))
        ]


def _held_front(rows: Iterator[Row], remaining: int) -> tuple[list[Row], int]:
    """Return held bundles, and the next ones while there is room; and the place up to which that is all."""
    found: list[Row] = []
    for row in rows:
        found.append(row)
        if row.slices[0].token is None and remaining < 0:
            return found, int(row.raw[PLACE])
        remaining -= sum(each.count for each in row.slices)
    return found, _END


class _Plan:
    """The bundles that a claim is to take, and the losses of others by that."""

    def __init__(self, request: Claim, now: int) -> None:
        self._request, self._now = request, now
        self.wanted = request.limit
        self.taken: list[_Held] = []
        self._ends: dict[
            bytes, dict[int, int]
        ] = {}  # of a bundle's slices that are taken, by their first messages
        self._rows: dict[bytes, Row] = {}

    def add(self, row: Row, piece: Slice) -> None:
        """Take as much of a slice as there is room for."""
        end = min(piece.end, piece.first + self.wanted)
        self._rows[row.id] = row
        if end > piece.first:
            self.taken.append((row, piece.part(piece.first, end)))
            self._ends.setdefault(row.id, {})[piece.first] = end
            self.wanted -= end - piece.first

    def follow(self, rows: Sequence[Row], known: int) -> bool:
        """Take the next bundles in a group, up to a place, while they are due, or were held with the first.

        Returns whether it may continue beyond that place.
        """
        pieces = sorted(
            ((row.base + each.first, row, each) for row in rows for each in row.slices),
            key=lambda piece: piece[0],
        )
        for place, row, piece in pieces:
            if place > known:
                break
            if piece.first in self._ends.get(row.id, ()):
                continue
            if self.wanted > 0 and (piece.token or piece.due <= self._now):
                self.add(row, piece)
            elif piece.token:
                self._rows[row.id] = row
            else:
                return False
        return known < _END

    def store(self, groups: Groups) -> None:
        """Let the groups have it so, and note what is chosen under the claim's token."""
        for key, row in self._rows.items():
            groups.change(row, Change(tuple(self._after(row, self._ends.get(key, {}))), row.kept))
        if self._ends:
            noted = {"$push": {CHOSEN: b"".join(self._ends)}, "$set": {STAMP: 0}}
            update = noted | {"$currentDate": {FINISHED_AT: True}}
            groups.notes.append(Statement({"_id": self._request.token}, update).encoded(upsert=True))

    def _after(self, row: Row, ends: dict[int, int]) -> Iterator[Slice]:
        request, until = self._request, self._now + self._request.lease
        for each in row.slices:
            end = ends.get(each.first, each.first)
            if end > each.first:
                counted = each.deliveries + request.started
                yield Slice(each.first, end - each.first, until, counted, request.token, not request.started)
            if end < each.end:
                rest = each.part(end, each.end)
                yield Slice(rest.first, rest.count, self._now, each.deliveries) if each.token else rest
