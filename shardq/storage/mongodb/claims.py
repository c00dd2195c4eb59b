"""Taking slices under a claim's token: one look at the shard, one command that takes what is still as it was seen."""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from shardq.sharding.shard import Shard
from shardq.storage.clocks import ServerClock
from shardq.storage.mongodb.changing import condition
from shardq.storage.mongodb.directory import Open
from shardq.storage.mongodb.documents import STATE, Document, Row, Slice, state_of
from shardq.storage.mongodb.read_cursors import OLDEST, Lookout, Sight
from shardq.storage.mongodb.session import Session
from shardq.storage.mongodb.shard_rows import CollectionGone, ShardRows, Statement
from shardq.storage.requests import Claim, Claimed, ClaimedSlice

__all__ = ["Claims"]

_ATTEMPTS = 4
_PAUSE = 0.05  # seconds
_MOST_ROWS = 1000
_SPARE_ROWS = 1
_TOKEN_INDEX = "token"


class _Sizes:
    """How many messages a bundle of each shard had of late, so that a claim reads no more bundles than it needs."""

    def __init__(self) -> None:
        self._messages: dict[Shard, float] = {}

    def rows_for(self, shard: Shard, messages: int) -> int:
        """Return how many bundles are likely to hold so many messages."""
        return min(_MOST_ROWS, int(messages / self._messages.get(shard, 8.0)) + _SPARE_ROWS)

    def learn(self, shard: Shard, rows: int, messages: int) -> None:
        """So many bundles had so many messages to claim."""
        self._messages[shard] = max(messages / rows, 1.0)


class _Piece(msgspec.Struct, frozen=True):
    """What is taken of a slice."""

    row: Row
    slice: Slice


class _Found(msgspec.Struct, frozen=True):
    """What a look at the shard chose."""

    sight: Sight
    pieces: list[_Piece]
    rest: bool  # there may be more
    late: bytes | None

    @property
    def is_sound(self) -> bool:
        """False when something came late since the floors were read."""
        return self.late == self.sight.floors.late


class Claims:
    """Claims by this client."""

    def __init__(self, session: Session, clock: ServerClock, lookout: Lookout, collections: Open) -> None:
        self._session, self._clock, self._lookout = session, clock, lookout
        self._collections = collections
        self._sizes = _Sizes()

    def claim(self, request: Claim) -> Claimed:
        """Take up to the limit of deliverable messages, or again what the token holds.

        A repetition is told by the server, before it takes anything.
        """
        try:
            return self._claim(request)
        except CollectionGone:
            self._collections.is_not(request.shard)
            return Claimed((), self._clock.now() + request.lease)

    def _claim(self, request: Claim) -> Claimed:
        rows = ShardRows(self._session, request.shard)
        repeated = False
        for _ in range(_ATTEMPTS):
            now = self._clock.now()
            until = now + request.lease
            found = self._find(rows, request, now)
            if not found.pieces and not repeated:
                held = [] if _begun(rows, request) is None else _held(rows, request)
                return _claimed_of(_hold_again(rows, held, request, until), request.token, until)
            statements = list(_statements(found.pieces, request, now))
            taken = rows.change(statements) if repeated else self._take(rows, request, statements)
            if taken == len({piece.row.id for piece in found.pieces}):
                self._move(request.shard, found, now, until)
                return Claimed(tuple(map(_claimed, found.pieces)), until)
            held = _held_by_now(rows, request) if taken is None else _held(rows, request)
            if held:
                began = now
                if taken is None:
                    held = _hold_again(rows, held, request, until)
                    began = _begun(rows, request) or OLDEST
                held = self._fill_gaps(rows, request, held, began)
                return _claimed_of(held, request.token, until)
            repeated = True
        return Claimed((), until, contended=True)

    def _take(self, rows: ShardRows, request: Claim, statements: Sequence[Statement]) -> int | None:
        if (uuid := self._collections.seen(request.shard)) is None:
            raise CollectionGone
        return rows.take(request.token, statements, uuid)

    def _fill_gaps(self, rows: ShardRows, request: Claim, held: list[Row], began: int) -> list[Row]:
        """Take what was passed over because others changed its bundles meanwhile, and was due when the claim began.

        So nothing that is claimed comes before what is left.
        """
        for _ in range(_ATTEMPTS):
            now = self._clock.now()
            mine = _places(held, request.token)
            missing = request.limit - sum(taken.count for _, taken in mine)
            if not mine or not missing:
                break
            last = max(place for place, _ in mine)
            (sight,) = self._lookout.sights([request.shard], now)
            found = self._look(rows, msgspec.structs.replace(request, limit=missing), sight, now)
            gaps = [
                piece
                for piece in found.pieces
                if piece.slice.due <= began and piece.row.place(piece.slice) < last
            ]
            if not gaps:
                break
            rows.change(list(_statements(gaps, request, now)))
            held = _held(rows, request)
        return held

    def _find(self, rows: ShardRows, request: Claim, now: int) -> _Found:
        """Choose what to take; when nothing is found, or something came late, from all that is above the floors."""
        (sight,) = self._lookout.sights([request.shard], now)
        found = self._look(rows, request, sight, now)
        if found.pieces and found.is_sound:
            return found
        found = self._look(rows, request, self._lookout.afresh(request.shard, now), now)
        if not found.pieces:
            self._move(request.shard, found, now, OLDEST)
        return found

    def _look(self, rows: ShardRows, request: Claim, sight: Sight, now: int) -> _Found:
        """Choose the first deliverable messages, in their order.

        A page begins with the last bundle of the one before, wherever others have moved what comes before it.
        """
        found: list[Row] = []
        start: tuple[int, int, bytes] | None = None
        messages = 0
        while True:
            # As many as it takes if each has one message; beyond the last, reads cross what was consumed.
            wanted = min(_MOST_ROWS, request.limit - messages + _SPARE_ROWS)
            if not found:
                wanted = self._sizes.rows_for(request.shard, request.limit)
            page = rows.first(sight.due(now, start), wanted)
            known = {row.id for row in found}
            found += (row for row in page.rows if row.id not in known)
            complete = page.complete
            start = _order(page.rows[-1]) if page.rows else None
            pieces, messages = _choose(found, request.limit, now, complete=complete)
            if complete or messages >= request.limit or len(found) >= _MOST_ROWS:
                if pieces:
                    self._sizes.learn(request.shard, len({piece.row.id for piece in pieces}), messages)
                return _Found(sight, pieces, not complete or messages >= request.limit, page.late)

    def _move(self, shard: Shard, found: _Found, now: int, until: int) -> None:
        """All that was found is taken: read on from there."""
        last = found.pieces[-1] if found.rest else None
        place = (last.row.priority, last.slice.due, last.row.id) if last else None
        found.sight.consumed(place, now, until)
        self._lookout.moved(shard, found.sight, now)


def _held(rows: ShardRows, request: Claim) -> list[Row]:
    return rows.find({"t": request.token}, hint=_TOKEN_INDEX, bodies=True)


def _begun(rows: ShardRows, request: Claim) -> int | None:
    """Return when a claim with this token was begun, by the server's clock."""
    begun = rows.read([request.token]).get(request.token)
    return int(begun.raw["x"].timestamp() * 1_000_000) if begun else None


def _held_by_now(rows: ShardRows, request: Claim) -> list[Row]:
    """Return what the token holds; a first attempt may still be at it."""
    held = _held(rows, request)
    if not held:
        time.sleep(_PAUSE)
        held = _held(rows, request)
    return held


def _hold_again(rows: ShardRows, held: list[Row], request: Claim, until: int) -> list[Row]:
    """Give what the token holds a fresh lease."""
    statements = []
    for row in held:
        slices = tuple(
            msgspec.structs.replace(each, due=until) if each.token == request.token else each
            for each in row.slices
        )
        statements.append(_statement(row, slices))
    if rows.change(statements) < len(held):
        held = _held(rows, request)
    return held


def _choose(found: Sequence[Row], limit: int, now: int, *, complete: bool) -> tuple[list[_Piece], int]:
    """Take deliverable slices up to the limit; unless all bundles were found, none that others may come before."""
    pieces: list[_Piece] = []
    messages = 0
    last = None if complete else max(map(_order, found))
    for place, row, each in _deliverable(found, now):
        if last is not None and place[:3] > last:
            break
        taken = each.part(each.first, min(each.end, each.first + limit - messages))
        pieces.append(_Piece(row, taken))
        messages += taken.count
        if messages >= limit:
            break
    return pieces, messages


def _deliverable(found: Iterable[Row], now: int) -> Iterator[tuple[tuple[int, int, bytes, int], Row, Slice]]:
    """Return the slices that are due in the order of claims, reading no further ahead than it takes."""
    ahead: list[tuple[tuple[int, int, bytes, int], Row, Slice]] = []
    for row in found:
        start = (row.priority, row.raw["d"], row.id, -1)
        while ahead and ahead[0][0] < start:
            yield heapq.heappop(ahead)
        for each in row.slices:
            if each.due <= now:
                heapq.heappush(ahead, (row.place(each), row, each))
    while ahead:
        yield heapq.heappop(ahead)


def _statements(pieces: Sequence[_Piece], request: Claim, now: int) -> Iterator[Statement]:
    """Join bundles that are alike into one statement; each is changed only if it is as it was seen."""
    until = now + request.lease
    by_row: dict[bytes, list[_Piece]] = {}
    for piece in pieces:
        by_row.setdefault(piece.row.id, []).append(piece)
    alike: dict[tuple[int, int], list[bytes]] = {}
    for taken in by_row.values():
        row = taken[0].row
        if _is_whole(row) and taken[0].slice == row.slices[0]:
            alike.setdefault((row.raw["v"], row.raw["n"]), []).append(row.id)
        else:
            yield _statement(row, _after(row, taken, request, until))
    for (deliveries, count), ids in alike.items():
        whole = {"_id": {"$in": ids}, "d": {"$lte": now}, "v": deliveries, "n": count, "s": None, "h": None}
        held = {"d": until, "v": deliveries + request.started, "m": -count, "t": request.token}
        started: Document = {"$set": held, "$unset": {"u": 1}}
        yield Statement(whole, started if request.started else {"$set": held | {"u": True}})


def _is_whole(row: Row) -> bool:
    return "s" not in row.raw and "h" not in row.raw


def _after(row: Row, taken: Sequence[_Piece], request: Claim, until: int) -> tuple[Slice, ...]:
    """Return the bundle's slices after the claim."""
    ends = {piece.slice.first: piece.slice.end for piece in taken}
    slices: list[Slice] = []
    for each in row.slices:
        end = ends.get(each.first, each.first)
        if end > each.first:
            counted = each.deliveries + request.started
            held = Slice(each.first, end - each.first, until, counted, request.token, not request.started)
            slices.append(held)
        if end < each.end:
            slices.append(each.part(end, each.end))
    return tuple(slices)


def _statement(row: Row, slices: tuple[Slice, ...]) -> Statement:
    state = state_of(row.raw["n"], slices, row.kept)
    gone = {field: 1 for field in STATE if field in row.raw and field not in state}
    update: Document = {"$set": state} | ({"$unset": gone} if gone else {})
    return Statement({"_id": row.id} | condition(row), update)


def _claimed(piece: _Piece) -> ClaimedSlice:
    return ClaimedSlice(piece.row.bundle, piece.slice.first, piece.slice.count, piece.slice.deliveries + 1)


def _claimed_of(held: Sequence[Row], token: bytes, until: int) -> Claimed:
    """Return what a token holds, in the order of sending."""
    slices = sorted(_places(held, token), key=lambda item: item[0])
    return Claimed(tuple(taken for _, taken in slices), until)


def _order(row: Row) -> tuple[int, int, bytes]:
    return row.priority, row.raw["d"], row.id


def _places(held: Sequence[Row], token: bytes) -> list[tuple[tuple[int, int, bytes, int], ClaimedSlice]]:
    """What a token holds, with its places in the order of sending."""
    return [
        (
            (row.priority, row.raw["o"], row.id, each.first),
            ClaimedSlice(row.bundle, each.first, each.count, each.told),
        )
        for row in held
        for each in row.slices
        if each.token == token
    ]
