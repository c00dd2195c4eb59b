"""Claims that finish what they take, in the one change that takes it.

That is done where a claim takes one slice and leaves nothing of its bundle; anything else it only holds. The bundle's
stamp then follows from the claim's token, and no later change overwrites it. What was to be finished is remembered here
until the claim is answered. A repetition bars the earlier attempt, which may still be under way, and then sees by the
stamp whether it came first.
"""

from __future__ import annotations

import os
from collections import deque

from shardq.storage.mongodb.changing import condition, finish
from shardq.storage.mongodb.documents import BARRED, STAMP
from shardq.storage.mongodb.shard_rows import ShardRows, Statement
from shardq.storage.mongodb.slicing import Piece
from shardq.storage.per_process import OwnLock
from shardq.storage.requests import Claim, ClaimedSlice

__all__ = ["Finishing", "claimed"]

_ANSWERED = 64  # claims that are remembered although they were answered


class Finishing:
    """What claims by this client were to finish."""

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
        """The claim was carried out: remember it for a while."""
        with self._lock:
            if token in self._planned:
                self._answered.append(token)
            while len(self._answered) > _ANSWERED:
                self._planned.pop(self._answered.popleft(), None)

    def forget(self, token: bytes) -> None:
        """What was planned did not happen."""
        self._planned.pop(token, None)

    def again(self, rows: ShardRows, request: Claim) -> ClaimedSlice | None:
        """Return what an earlier attempt at this claim finished; if it is none, it never will."""
        piece = self._planned.get(request.token)
        if piece is None:
            return None
        stamp = _stamp(request.token)
        unless_done = {"_id": piece.row.id, STAMP: {"$ne": stamp}}
        rows.change([Statement(unless_done, {"$set": {BARRED: os.urandom(8)}})])
        found = rows.read([piece.row.id]).get(piece.row.id)
        if found is not None and found.stamp == stamp:
            return claimed(piece, finished=True)
        self.forget(request.token)
        return None


def claimed(piece: Piece, *, finished: bool = False) -> ClaimedSlice:
    """Return what a claim answers for a piece."""
    counted = piece.slice.deliveries + 1
    return ClaimedSlice(piece.row.bundle, piece.slice.first, piece.slice.count, counted, finished)


def _stamp(token: bytes) -> int:
    return int.from_bytes(token[-8:], "big") >> 1
