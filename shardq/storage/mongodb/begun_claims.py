"""Which claims were begun, and what each chose: how a repetition is told, and finds what the first attempt took.

What says so is a document with the claim's token as its id. The server deletes it as it does finished bundles.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from shardq.storage.bundle_id import BUNDLE_ID_BYTES
from shardq.storage.mongodb.documents import CHOSEN, FINISHED_AT, STAMP, TOKEN, WAITING, Document, Row
from shardq.storage.mongodb.shard_rows import ShardRows, Statement
from shardq.storage.mongodb.slicing import Piece
from shardq.storage.read_cursors import OLDEST

__all__ = ["begin", "begun_at", "go_on", "held_by_now", "held_under", "ids_of"]

_PAUSE = 0.05  # seconds


def begin(token: bytes, chosen: Iterable[bytes]) -> Statement:
    """Return what notes a claim and what it is to take; with ``upsert`` it fails for one that was begun before."""
    noted = {STAMP: 0, CHOSEN: [b"".join(chosen)]}
    return Statement(
        {"_id": token, FINISHED_AT: {"$exists": False}},
        {"$currentDate": {FINISHED_AT: True}, "$set": noted},
    )


def go_on(token: bytes, chosen: Iterable[bytes]) -> Statement:
    """Return what notes that a claim which was begun is to take more."""
    return Statement({"_id": token, CHOSEN: {"$exists": True}}, {"$push": {CHOSEN: b"".join(chosen)}})


def begun_at(rows: ShardRows, token: bytes) -> int:
    """Return when a claim with this token was begun, by the server's clock; if it was not, before every moment."""
    begun = _begun(rows, token)
    return OLDEST if begun is None else int(begun[FINISHED_AT].timestamp() * 1_000_000)


def held_under(rows: ShardRows, token: bytes) -> list[Row]:
    """Return what the token holds of what its claim chose."""
    begun = _begun(rows, token)
    if begun is None:
        return []
    if CHOSEN in begun:
        found = list(rows.read(_cut(b"".join(begun[CHOSEN])), bodies=True).values())
    else:  # a client of an earlier version noted nothing
        found = rows.find(WAITING | {TOKEN: token}, bodies=True)
    return [row for row in found if any(each.token == token for each in row.slices)]


def held_by_now(rows: ShardRows, token: bytes) -> list[Row]:
    """Return what the token holds; a first attempt may still be at it."""
    held = held_under(rows, token)
    if not held:
        time.sleep(_PAUSE)
        held = held_under(rows, token)
    return held


def ids_of(pieces: Sequence[Piece]) -> list[bytes]:
    """Return the ids of the bundles that the pieces are of."""
    return list(dict.fromkeys(piece.row.id for piece in pieces))


def _begun(rows: ShardRows, token: bytes) -> Document | None:
    found = rows.read([token]).get(token)
    return found.raw if found else None


def _cut(ids: bytes) -> list[bytes]:
    return [ids[start : start + BUNDLE_ID_BYTES] for start in range(0, len(ids), BUNDLE_ID_BYTES)]
