"""The recognition of a repeated claim, and the search for the messages that its first attempt took or finished.

A document with the token of a claim as its id says that the claim was begun, and what it chose. The server deletes it
as it does finished bundles.

A claim can finish what it takes, in the one change that takes it. That is done where it takes one slice and leaves
nothing of its bundle; anything else it only holds. The bundle's stamp then follows from the claim's token, and no
later change overwrites it. Messages that were to be finished are remembered here until the claim is answered. A
repetition bars the earlier attempt, which may still be under way, and then sees by the stamp whether it came first.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterable, Sequence

from shardq.storage.bundles import BUNDLE_ID_BYTES
from shardq.storage.mongodb.changing import condition, finish
from shardq.storage.mongodb.documents import (
    BARRED,
    CHOSEN,
    FINISHED_AT,
    SENT_DUE,
    STAMP,
    TOKEN,
    WAITING,
    ClaimOrder,
    Document,
    Row,
)
from shardq.storage.mongodb.shard_rows import ShardRows, Statement
from shardq.storage.mongodb.slicing import Piece
from shardq.storage.per_process import OwnLock
from shardq.storage.read_cursors import OLDEST
from shardq.storage.requests import Claim, Claimed, ClaimedSlice

__all__ = [
    "Finishing",
    "InDoubt",
    "begin",
    "begun_at",
    "chosen_under",
    "claimed",
    "claimed_of",
    "continue_claim",
    "held_by_now",
    "held_under",
    "ids_of",
    "places_of",
]

_PAUSE = 0.05  # seconds
_ANSWERED = 64  # claims that are remembered although they were answered
_IN_DOUBT = 64


def begin(token: bytes, chosen: Iterable[bytes]) -> Statement:
    """Return what notes a claim and what it is to take; with ``upsert`` it fails for one that was begun before."""
    noted = {STAMP: 0, CHOSEN: [b"".join(chosen)]}
    return Statement(
        {"_id": token, FINISHED_AT: {"$exists": False}}, {"$currentDate": {FINISHED_AT: True}, "$set": noted}
    )


def continue_claim(token: bytes, chosen: Iterable[bytes]) -> Statement:
    """Return what notes that a claim which was begun is to take more."""
    return Statement({"_id": token, CHOSEN: {"$exists": True}}, {"$push": {CHOSEN: b"".join(chosen)}})


def begun_at(rows: ShardRows, token: bytes) -> int:
    """Return when a claim with this token was begun, by the server's clock; if it was not, before every moment."""
    begun = _begun(rows, token)
    return OLDEST if begun is None else int(begun[FINISHED_AT].timestamp() * 1_000_000)


def held_under(rows: ShardRows, token: bytes) -> list[Row]:
    """Return the slices that the token holds of what its claim chose."""
    return [row for row in chosen_under(rows, token) if row.is_held_under(token)]


def chosen_under(rows: ShardRows, token: bytes) -> list[Row]:
    """Return the bundles that the token's claim chose, as they are now, held or not."""
    begun = _begun(rows, token)
    if begun is None:
        return []
    if CHOSEN in begun:
        return list(rows.read(_cut(b"".join(begun[CHOSEN])), bodies=True).values())
    return rows.find(WAITING | {TOKEN: token}, bodies=True)  # a client of an earlier version noted nothing


def held_by_now(rows: ShardRows, token: bytes) -> list[Row]:
    """Return the slices that the token holds; a first attempt may still be at it."""
    held = held_under(rows, token)
    if not held:
        time.sleep(_PAUSE)
        held = held_under(rows, token)
    return held


def claimed_of(held: Sequence[Row], token: bytes, until: int) -> Claimed:
    """Return what a token holds, in the order of sending."""
    slices = sorted(places_of(held, token), key=lambda item: item[0])
    return Claimed(tuple(taken for _, taken in slices), until)


def places_of(
    held: Sequence[Row], token: bytes, seen: Iterable[Piece] = ()
) -> list[tuple[ClaimOrder, ClaimedSlice]]:
    """Return the messages of a token, with their places before the claim, or else those of their sending.

    The place of a redelivered message depends on when it was due again, which is not stored while it is held. Of a
    slice that was taken in several pieces and is stored as one, the last place counts.
    """
    places: dict[bytes, dict[int, ClaimOrder]] = {}
    for piece in seen:
        places.setdefault(piece.row.id, {})[piece.slice.first] = piece.row.place(piece.slice)
    return [
        (
            max(
                (place for first, place in places.get(row.id, {}).items() if each.first <= first < each.end),
                default=(row.priority, row.raw[SENT_DUE], row.id, each.first),
            ),
            ClaimedSlice(row.bundle, each.first, each.count, each.all_deliveries),
        )
        for row in held
        for each in row.slices
        if each.token == token
    ]


def ids_of(pieces: Sequence[Piece]) -> list[bytes]:
    """Return the ids of the bundles that the pieces are of."""
    return list(dict.fromkeys([piece.row.id for piece in pieces]))


def _begun(rows: ShardRows, token: bytes) -> Document | None:
    found = rows.read([token]).get(token)
    return found.raw if found else None


def _cut(ids: bytes) -> list[bytes]:
    return [ids[start : start + BUNDLE_ID_BYTES] for start in range(0, len(ids), BUNDLE_ID_BYTES)]


class Finishing:
    """The messages that claims by this client were to finish."""

    def __init__(self) -> None:
        self._lock = OwnLock()
        self._planned: dict[bytes, Piece] = {}
        self._answered: deque[bytes] = deque()

    def plan(self, request: Claim, pieces: list[Piece]) -> Statement | None:
        """Return what finishes the only piece that was chosen; None when it may only be held."""
        if request.finish is None or request.finish.keep or len(pieces) != 1:
            return None
        (piece,) = pieces
        if piece.row.slices != (piece.slice,) or piece.row.kept or not request.finish.covers(claimed(piece)):
            return None
        self._planned[request.token] = piece
        seen = {"_id": piece.row.id} | condition(piece.row)
        return Statement(seen, finish(_stamp(request.token), piece.row.moved))

    def answered(self, token: bytes) -> None:
        """Remember for a while that the claim was carried out."""
        with self._lock.plain:
            if token in self._planned:
                self._answered.append(token)
            while len(self._answered) > _ANSWERED:
                self._planned.pop(self._answered.popleft(), None)

    def forget(self, token: bytes) -> None:
        """Forget a plan that was not carried out."""
        self._planned.pop(token, None)

    def again(self, rows: ShardRows, request: Claim) -> ClaimedSlice | None:
        """Return what an earlier attempt at this claim finished; if it is none, it never will."""
        piece = self._planned.get(request.token)
        if piece is None:
            return None
        stamp = _stamp(request.token)
        unless_done = {"_id": piece.row.id, STAMP: {"$ne": stamp}, FINISHED_AT: {"$exists": False}}
        rows.change([Statement(unless_done, {"$set": {BARRED: os.urandom(8)}})])
        found = rows.read([piece.row.id]).get(piece.row.id)
        if found is not None and found.stamp == stamp:
            return claimed(piece, finished=True)
        self.forget(request.token)
        return None


class InDoubt:
    """The last claims that this client has begun and got no answer of. Only those are completed by a repetition."""

    def __init__(self) -> None:
        self._lock = OwnLock()
        self._tokens: dict[bytes, None] = {}

    def __contains__(self, token: bytes) -> bool:
        return token in self._tokens

    def add(self, token: bytes) -> None:
        """Note that an attempt ended with an error."""
        with self._lock.plain:
            self._tokens[token] = None
            if len(self._tokens) > _IN_DOUBT:
                del self._tokens[next(iter(self._tokens))]

    def remove(self, token: bytes) -> None:
        """Note that it was answered."""
        self._tokens.pop(token, None)


def claimed(piece: Piece, *, finished: bool = False) -> ClaimedSlice:
    """Return what a claim answers for a piece."""
    counted = piece.slice.deliveries + 1
    return ClaimedSlice(piece.row.bundle, piece.slice.first, piece.slice.count, counted, finished)


def _stamp(token: bytes) -> int:
    return int.from_bytes(token[-8:], "big") >> 1
