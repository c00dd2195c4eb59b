"""Taking slices under a claim's token: one read of the shard, one command that takes those that are unchanged since."""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import ceil

import msgspec

from shardq.base.shard import Shard
from shardq.storage.mongodb import group_claims
from shardq.storage.mongodb.client import Client
from shardq.storage.mongodb.documents import ClaimOrder, Row
from shardq.storage.mongodb.queues import parted
from shardq.storage.mongodb.read_cursors import ReadCursor
from shardq.storage.mongodb.repeated_claims import (
    Finishing,
    InDoubt,
    begin,
    begun_at,
    chosen_under,
    claimed,
    claimed_of,
    continue_claim,
    held_by_now,
    held_under,
    ids_of,
    places_of,
)
from shardq.storage.mongodb.settling import release
from shardq.storage.mongodb.shard_rows import CollectionGone, ShardRows, Statement
from shardq.storage.mongodb.slicing import Piece, choose, passed_over
from shardq.storage.mongodb.taking import hold_again, statements_of
from shardq.storage.mongodb.transactions import Disturbed
from shardq.storage.read_cursors import OLDEST
from shardq.storage.requests import Claim, Claimed, ClaimedSlice, Release, Span
from shardq.storage.writing import after_a_write

__all__ = ["Claims"]

_ATTEMPTS = 4
_ATTEMPTS_AT_GROUPS = 8
_MOST_ROWS = 1000
_MOST_SHARDS = 10_000  # whose sizes are remembered


class _Size(msgspec.Struct, frozen=True):
    """How many messages the bundles of a shard had to claim of late."""

    messages: float
    alike: bool  # as many in each

    def rows_for(self, messages: int) -> int:
        """Return how many bundles are likely to hold this number of messages, plus one unless they fit exactly.

        One too many costs its body, and one too few another read.
        """
        rows = ceil(messages / self.messages)
        return rows if self.alike and rows * self.messages == messages else rows + 1


_GUESS = _Size(8.0, alike=False)


class _Sizes:
    """How large the bundles of each shard were of late, so that a claim reads hardly more of them than it needs."""

    def __init__(self) -> None:
        self._of_shards: dict[Shard, _Size] = {}
        self._of_queues: dict[str, _Size] = {}

    def remembered(self) -> int:
        """Return how many shards or queues are remembered, whichever are more."""
        return max(len(self._of_shards), len(self._of_queues))

    def rows_for(self, shard: Shard, messages: int) -> int:
        """Return how many bundles to read.

        In a shard that is new to this client, they are as large as elsewhere in the queue. Where those are smaller
        they have eight messages, as a guess that is wrong would cost many bodies.
        """
        size = self._of_shards.get(shard) or self._of_queues.get(shard.queue, _GUESS)
        if shard not in self._of_shards and size.messages < _GUESS.messages:
            size = _GUESS
        return min(_MOST_ROWS, size.rows_for(messages))

    def learn(self, shard: Shard, pieces: Sequence[Piece], now: int) -> None:
        """Learn the size of bundles that were chosen; all claimable messages count, whether or not they were taken."""
        rows = {piece.row.id: piece.row for piece in pieces}.values()
        found = [sum([each.count for each in row.slices if each.due <= now]) for row in rows]
        size = _Size(sum(found) / len(found), alike=min(found) == max(found))
        if len(self._of_shards) >= _MOST_SHARDS:
            self._of_shards.clear()
            self._of_queues.clear()
        self._of_shards[shard] = self._of_queues[shard.queue] = size


class _Found(msgspec.Struct, frozen=True):
    """The choice of a read of the shard."""

    cursor: ReadCursor
    pieces: list[Piece]
    rest: bool  # there may be more
    late: bytes | None

    @property
    def is_sound(self) -> bool:
        """False when something came late since the low watermarks were read."""
        return self.late == self.cursor.watermarks.late


class Claims:
    """Claims by this client."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._session, self._clock = client.session, client.clock
        self._cursors, self._collections = client.cursors, client.collections
        self.sizes, self._finishing, self._in_doubt = _Sizes(), Finishing(), InDoubt()

    def claim(self, request: Claim) -> Claimed:
        """Take up to the limit of deliverable messages, or again those that the token holds.

        The server recognises a repetition before it takes anything.
        """
        try:
            claimed = self._claim_where_it_is(request)
        except BaseException:
            self._in_doubt.add(request.token)
            raise
        self._in_doubt.remove(request.token)
        self._cursors.put_off(request.shard, claimed.lease_until)
        return claimed

    def _claim_where_it_is(self, request: Claim) -> Claimed:
        for _ in range(_ATTEMPTS):
            try:
                return self._claim(request)
            except CollectionGone:
                self._collections.is_not(request.shard)
        return Claimed((), self._clock.now() + request.lease)

    def _claim_of_groups(self, request: Claim) -> Claimed:
        """Take from groups; from fewer of them while others are at work on some, one of which may have crashed."""
        rows = ShardRows(self._session, request.shard)
        for attempt in range(_ATTEMPTS_AT_GROUPS):
            now = self._clock.now()
            until = now + request.lease
            found = self._find(rows, request, now)
            if not found.pieces and not held_under(rows, request.token):
                return Claimed((), until)
            wanted = [piece.row for piece in found.pieces]
            some = set(random.sample(range(len(wanted)), max(len(wanted) >> attempt, min(len(wanted), 1))))
            chosen = [row for index, row in enumerate(wanted) if index in some]
            try:
                claimed = group_claims.take(self._client, request, chosen, now)
            except Disturbed:
                continue
            if {each.bundle.id for each in claimed.slices} >= {row.id for row in wanted}:
                self._move(request.shard, found, now, until)
            if claimed.slices:
                return claimed
        return Claimed((), until, contended=True)

    def _claim(self, request: Claim) -> Claimed:
        if request.shard.is_grouped:
            return self._claim_of_groups(request)
        rows = ShardRows(self._session, request.shard)
        with after_a_write(lambda: rows.has_changed):
            return self._take_from(rows, request)

    def _take_from(self, rows: ShardRows, request: Claim) -> Claimed:
        repeated = False
        if (done := self._finishing.again(rows, request)) is not None:
            return Claimed((done,), self._clock.now() + request.lease)
        for _ in range(_ATTEMPTS):
            now = self._clock.now()
            until = now + request.lease
            found = self._find(rows, request, now)
            if not found.pieces and not repeated:
                held = held_under(rows, request.token)
                return claimed_of(hold_again(rows, held, request, until), request.token, until)
            chosen = ids_of(found.pieces)
            finish = self._finishing.plan(request, found.pieces)
            statements = [finish] if finish else list(statements_of(found.pieces, request, now))
            taken = self._take(rows, request, chosen, statements, again=repeated)
            if taken == len(chosen):
                self._move(request.shard, found, now, until)
                self._finishing.answered(request.token)
                slices = [claimed(piece, finished=finish is not None) for piece in found.pieces]
                return Claimed(tuple(slices), until)
            self._finishing.forget(request.token)
            held = held_by_now(rows, request.token) if taken is None else held_under(rows, request.token)
            if held and taken is None:
                held = hold_again(rows, held, request, until)
            if held and (taken is not None or request.token in self._in_doubt):
                began = now if taken is not None else begun_at(rows, request.token)
                held = self._in_order(rows, request, began, found.pieces)
            if held:
                return claimed_of(held, request.token, until)
            repeated = True
        return Claimed((), until, contended=True)

    def _take(
        self,
        rows: ShardRows,
        request: Claim,
        chosen: Sequence[bytes],
        statements: Sequence[Statement],
        *,
        again: bool,
    ) -> int | None:
        if again:
            return rows.change([continue_claim(request.token, chosen), *statements], ordered=True) - 1
        if (uuid := self._collections.seen(request.shard)) is None:
            raise CollectionGone
        return rows.take(begin(request.token, chosen), statements, uuid)

    def _in_order(self, rows: ShardRows, request: Claim, began: int, seen: list[Piece]) -> list[Row]:
        """Take the rest of the bundles that this claim chose and others changed meanwhile; return all it holds.

        Where others are quicker each time, or there is no room for it, release the messages after it, before the claim
        is answered. Nothing that is claimed comes before the rest. Messages beyond the limit are released too, as an
        attempt that was late may have taken them beside a later one.
        """
        for attempt in range(_ATTEMPTS + 1):
            chosen = chosen_under(rows, request.token)
            held = places_of(chosen, request.token, seen)
            remaining = request.limit - sum(taken.count for _, taken in held)
            left = passed_over(chosen, held, began, max(remaining, 1))
            if not left and remaining >= 0:
                return [row for row in chosen if row.is_held_under(request.token)]
            if remaining <= 0 or attempt == _ATTEMPTS:
                break
            rows.change(list(statements_of(left, request, self._clock.now())))
            seen = [*seen, *left]
        self._release_rest(request, held, left[0] if left else None)
        return held_under(rows, request.token)

    def _release_rest(
        self, request: Claim, held: list[tuple[ClaimOrder, ClaimedSlice]], left: Piece | None
    ) -> None:
        """Release messages held after a piece that is left, and beyond the limit; others may have read meanwhile."""
        remaining, spans = request.limit, list[Span]()
        for place, taken in sorted(held, key=lambda item: item[0]):
            remaining -= taken.count
            if remaining < 0 or (left is not None and place > left.row.place(left.slice)):
                spans.append(Span(taken.bundle.id, taken.first, taken.count, request.token))
        release(self._client, Release(request.shard, tuple(spans), started=False))
        self._client.signals.announce(parted(request.shard.queue)[0])

    def _find(self, rows: ShardRows, request: Claim, now: int) -> _Found:
        """Choose what to take: from the read cursor on.

        When nothing is found there, or something came late, from the low watermarks on.
        """
        (cursor,) = self._cursors.of([request.shard], now)
        found = self._find_by(rows, request, cursor, now)
        if found.pieces and found.is_sound:
            return found
        found = self._find_by(rows, request, self._cursors.afresh(request.shard, now), now)
        if not found.pieces:
            self._move(request.shard, found, now, OLDEST)
        return found

    def _find_by(self, rows: ShardRows, request: Claim, cursor: ReadCursor, now: int) -> _Found:
        """Choose the first deliverable messages, in their order.

        A page begins with the last bundle of the one before, wherever others have moved what comes before it.
        """
        found: list[Row] = []
        start: tuple[int, int, bytes] | None = None
        messages = 0
        while True:
            # As many as it takes if each has one message, after the one that was read last. Beyond the last of them,
            # reads cross consumed messages.
            wanted = min(_MOST_ROWS, request.limit - messages + 1)
            if not found:
                wanted = self.sizes.rows_for(request.shard, request.limit)
            page = rows.first(cursor.due(now, start), wanted)
            known = {row.id for row in found}
            fresh = [row for row in page.rows if row.id not in known]
            found += group_claims.heads(fresh) if request.shard.is_grouped else fresh
            complete = page.complete
            start = page.rows[-1].order if page.rows else None
            pieces, messages = choose(found, request.limit, now, complete=complete)
            if complete or messages >= request.limit or len(found) >= _MOST_ROWS:
                if pieces:
                    self.sizes.learn(request.shard, pieces, now)
                return _Found(cursor, pieces, not complete or messages >= request.limit, page.late)

    def _move(self, shard: Shard, found: _Found, now: int, until: int) -> None:
        """Read on from the last of the found messages, which are all taken."""
        last = found.pieces[-1] if found.rest else None
        place = (last.row.priority, last.slice.due, last.row.id) if last else None
        found.cursor.consumed(place, now, until)
        self._cursors.moved(shard, found.cursor, now)
