"""The documents of the database: the names of their fields, and bundles as values.

The names are one letter long, because every document carries them. ``schema/mongodb/`` describes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import msgspec

from shardq.storage.requests import BLOCKED, BLOCKED_AFTER, Bundle
from shardq.storage.slicing import Range, overlap

__all__ = [
    "BEHIND",
    "ClaimOrder",
    "Document",
    "Kept",
    "Row",
    "Slice",
    "decode",
    "inserted",
    "moved_field",
    "position_fields",
    "processed",
    "state_of",
]

Document: TypeAlias = dict[str, Any]
ClaimOrder: TypeAlias = tuple[int, int, bytes, int]
"""The order of claims: priority, due time, bundle id, position."""

# Of a bundle: what never changes,
PRIORITY, SENT_DUE, ENQUEUED_AT, COUNT, DATA, EXPIRES_AT = "p", "o", "e", "n", "b", "l"
# in a shard of groups its group, and the place in it of the first of its messages that is not finished,
GROUP, PLACE = "r", "k"
CONTENT = (PRIORITY, SENT_DUE, ENQUEUED_AT, COUNT, DATA, EXPIRES_AT, GROUP, PLACE)
# what changes during its life,
DUE, DELIVERIES, TOKEN, UNSTARTED, COUNTED, SLICES, HISTORY = "d", "v", "t", "u", "m", "s", "h"
STATE = (DUE, DELIVERIES, TOKEN, UNSTARTED, COUNTED, SLICES, HISTORY)
BARRED = "w"  # which no later change takes back
# and what is left of it when it is finished.
FINISHED_AT, STAMP, MOVED = "x", "y", "z"
# Of a claim that was begun: the ids of what it chose, one after the other.
CHOSEN = "g"
# Of a group: the place of what is appended next.
NEXT = "j"
# Of a slice, beside some of the above.
FIRST, SIZE, PROCESSED_AT = "f", "c", "a"

# Of a shard in the directory.
QUEUE, TIME_SHARD, NUMBER, WATERMARKS = "q", "t", "n", "f"
# Of a consumer and of a dedupe key, which have a queue too.
CONSUMER, KEY, MESSAGE, CONFIRMED, UNTIL, DELETED_AFTER = "c", "k", "m", "c", "d", "x"

WITHOUT_BODIES = {DATA: 0}
EVERY_PRIORITY = {"$gte": 0, "$lte": 9}
WAITING: Document = {PRIORITY: EVERY_PRIORITY, DUE: {"$gte": -(2**62)}}
"""Finds, in the claim index, what is not finished."""

BEHIND = 1 << 61
"""The part of a document's due time that is added while others of its group are before it: it lies beyond all moments
then."""

CLAIM_ORDER = {PRIORITY: 1, DUE: 1, "_id": 1, COUNTED: 1, ENQUEUED_AT: 1}
"""The claim index. No other index can have this order."""

END: Document = {"_id": b"\xff" * 16, PRIORITY: 10, DUE: 0}
"""The end of the claim index. A search at its end goes back over all that was consumed until it meets something."""


class Slice(msgspec.Struct, frozen=True):
    """Messages ``first`` .. ``first + count - 1``, held while there is a token: that of a claim, or `BLOCKED`."""

    first: int
    count: int
    due: int
    deliveries: int
    token: bytes | None = None
    unstarted: bool = False  # the delivery to who holds it is not counted yet

    @property
    def all_deliveries(self) -> int:
        """The deliveries, with that to the present holder."""
        return self.deliveries + self.unstarted

    @property
    def end(self) -> int:
        """The position after its last message."""
        return self.first + self.count

    def part(self, first: int, end: int) -> Slice:
        """Return the messages between two positions that lie within it."""
        return msgspec.structs.replace(self, first=first, count=end - first)


class Kept(msgspec.Struct, frozen=True):
    """Messages that are kept as processed."""

    first: int
    count: int
    deliveries: int
    at: int

    @property
    def end(self) -> int:
        """The position after its last message."""
        return self.first + self.count


class Row(msgspec.Struct, frozen=True):
    """A bundle with the state of its messages."""

    id: bytes
    raw: Document  # as it is stored
    slices: tuple[Slice, ...]  # by position
    kept: tuple[Kept, ...]  # by position
    moved: tuple[Range, ...] = ()  # what was finished because it is stored elsewhere

    @property
    def stamp(self) -> int | None:
        """The stamp of the last change, by which its maker recognises it."""
        return self.raw.get(STAMP)

    @property
    def priority(self) -> int:
        """0 first .. 9 last."""
        return int(self.raw[PRIORITY])

    @property
    def bundle(self) -> Bundle:
        """The bundle; its data is empty when no bodies were read."""
        raw = self.raw
        sent = (raw[PRIORITY], raw[SENT_DUE], raw[ENQUEUED_AT], raw[COUNT])
        return Bundle(self.id, *sent, raw.get(DATA, b""), raw.get(EXPIRES_AT), raw.get(GROUP, ""))

    @property
    def group(self) -> str:
        """Its group; empty in a shard without groups, and when it is finished."""
        return str(self.raw.get(GROUP, ""))

    @property
    def base(self) -> int:
        """The place in its group that its first message had; for a bundle of which something is not finished."""
        return int(self.raw[PLACE]) - self.slices[0].first

    @property
    def is_behind(self) -> bool:
        """True while others of its group are before it."""
        return int(self.raw.get(DUE, 0)) >= BEHIND

    @property
    def due(self) -> int:
        """When the first of its slices is due."""
        return int(self.raw[DUE])

    @property
    def order(self) -> tuple[int, int, bytes]:
        """The order of bundles in the claim index."""
        return self.raw[PRIORITY], self.raw[DUE], self.id

    @property
    def count(self) -> int:
        """How many messages it had when it was sent."""
        return int(self.raw[COUNT])

    @property
    def is_whole(self) -> bool:
        """True when all of its messages are one slice, and none is kept."""
        return SLICES not in self.raw and HISTORY not in self.raw

    def is_held_under(self, token: bytes) -> bool:
        """Return whether the token holds a part of it."""
        return any(each.token == token for each in self.slices)

    def place(self, piece: Slice) -> ClaimOrder:
        """Return the place of a slice in the order of claims."""
        return self.raw[PRIORITY], piece.due, self.id, piece.first


def decode(raw: Document) -> Row:
    """Read a document."""
    if SLICES in raw:
        slices = tuple(_slice(each) for each in raw[SLICES])
    elif DUE in raw and COUNT in raw:  # which the end of the claim index has not
        own = raw[DUE] - (BEHIND if raw[DUE] >= BEHIND else 0)
        token = BLOCKED if own > BLOCKED_AFTER and TOKEN in raw else raw.get(TOKEN)
        slices = (Slice(0, raw[COUNT], own, raw[DELIVERIES], token, raw.get(UNSTARTED, False)),)
    else:
        slices = ()
    if HISTORY not in raw and MOVED not in raw:
        return Row(raw["_id"], raw, slices, ())
    kept = tuple(Kept(h[FIRST], h[SIZE], h[DELIVERIES], h[PROCESSED_AT]) for h in raw.get(HISTORY, ()))
    moved = tuple((z[FIRST], z[FIRST] + z[SIZE]) for z in raw.get(MOVED, ()))
    return Row(raw["_id"], raw, slices, kept, moved)


def inserted(bundle: Bundle) -> Document:
    """Return the document of a new bundle: one ready slice."""
    expiry = {} if bundle.expires_at is None else {EXPIRES_AT: bundle.expires_at}
    return {
        "_id": bundle.id,
        PRIORITY: bundle.priority,
        DUE: bundle.due,
        SENT_DUE: bundle.due,
        ENQUEUED_AT: bundle.enqueued_at,
        COUNT: bundle.count,
        DELIVERIES: 0,
        COUNTED: bundle.count,
        DATA: bundle.data,
        **expiry,
    }


def state_of(count: int, slices: tuple[Slice, ...], kept: tuple[Kept, ...]) -> Document:
    """Return the fields of :data:`STATE` that a bundle of ``count`` messages has; without any it is finished."""
    state: Document = {}
    slices = _joined(slices)
    if len(slices) == 1 and slices[0].count == count:
        (whole,) = slices
        state = {DUE: whole.due, DELIVERIES: whole.deliveries, COUNTED: -count if whole.token else count}
        if whole.token:
            state[TOKEN] = whole.token
        if whole.unstarted:
            state[UNSTARTED] = True
    elif slices:
        state = {
            DUE: min(each.due for each in slices),
            COUNTED: 0,
            SLICES: [_encoded(each) for each in slices],
        }
        tokens = list(dict.fromkeys(each.token for each in slices if each.token))
        if tokens:
            state[TOKEN] = tokens
    if kept:
        state[HISTORY] = [
            {FIRST: each.first, SIZE: each.count, DELIVERIES: each.deliveries, PROCESSED_AT: each.at}
            for each in kept
        ]
    return state


def position_fields(base: int, slices: Sequence[Slice], *, behind: bool) -> Document:
    """Return the fields that place a bundle of a group, and the moment when its messages continue.

    The slices keep their own due times, by position; only the first of a group that is not behind counts for claims.
    """
    first = min(slices, key=lambda each: each.first)
    return {DUE: first.due + (BEHIND if behind else 0), PLACE: base + first.first}


def moved_field(ranges: Iterable[Range]) -> list[Document]:
    """Return what a document has to say of messages that were moved elsewhere."""
    return [{FIRST: first, SIZE: end - first} for first, end in overlap((0, 2**62), ranges)]


def processed(**moments: int) -> Document:
    """Return a filter for bundles of which something is kept; with ``gte`` or ``lt``: that was processed then."""
    bounds = {f"${name}": moment for name, moment in moments.items()} or {"$gte": -(2**62)}
    return {HISTORY: {"$elemMatch": {PROCESSED_AT: bounds}}}


def _slice(raw: Document) -> Slice:
    token = BLOCKED if raw[DUE] > BLOCKED_AFTER and TOKEN in raw else raw.get(TOKEN)
    return Slice(raw[FIRST], raw[SIZE], raw[DUE], raw[DELIVERIES], token, raw.get(UNSTARTED, False))


def _encoded(piece: Slice) -> Document:
    encoded = {FIRST: piece.first, SIZE: piece.count, DUE: piece.due, DELIVERIES: piece.deliveries}
    return (
        encoded
        | ({TOKEN: piece.token} if piece.token else {})
        | ({UNSTARTED: True} if piece.unstarted else {})
    )


def _joined(slices: tuple[Slice, ...]) -> tuple[Slice, ...]:
    """Sort by position and join neighbours that share their state."""
    joined: list[Slice] = []
    for each in sorted(slices, key=lambda piece: piece.first):
        last = joined[-1] if joined else None
        if last and last.end == each.first and last.part(each.first, each.end) == each:
            joined[-1] = last.part(last.first, each.end)
        else:
            joined.append(each)
    return tuple(joined)
