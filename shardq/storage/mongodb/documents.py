"""The documents of a shard, as values. Their fields are described in ``schema/mongodb/``."""

from __future__ import annotations

from typing import Any

import msgspec

from shardq.storage.mongodb.session import Document
from shardq.storage.requests import Bundle

__all__ = ["STATE", "WITHOUT_BODIES", "Kept", "Row", "Slice", "decode", "inserted", "state_of"]

STATE = ("d", "v", "t", "m", "s", "h")
"""The fields that change during the life of a bundle."""

WITHOUT_BODIES = {"b": 0}


class Slice(msgspec.Struct, frozen=True):
    """Messages ``first`` .. ``first + count - 1``, held while there is a token."""

    first: int
    count: int
    due: int
    deliveries: int
    token: bytes | None = None

    @property
    def end(self) -> int:
        """The position after its last message."""
        return self.first + self.count

    def part(self, first: int, end: int) -> Slice:
        """The messages between two positions that lie within it."""
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

    @property
    def stamp(self) -> int | None:
        """The last change that its maker has to recognise."""
        return self.raw.get("y")

    @property
    def priority(self) -> int:
        """0 first .. 9 last."""
        return int(self.raw["p"])

    @property
    def bundle(self) -> Bundle:
        """The bundle; its data is empty when no bodies were read."""
        raw = self.raw
        return Bundle(self.id, raw["p"], raw["o"], raw["e"], raw["n"], raw.get("b", b""))

    def place(self, piece: Slice) -> tuple[int, int, bytes, int]:
        """What claims are ordered by."""
        return self.priority, piece.due, self.id, piece.first


def decode(raw: Document) -> Row:
    """Read a document."""
    if "s" in raw:
        slices = tuple(Slice(s["f"], s["c"], s["d"], s["v"], s.get("t")) for s in raw["s"])
    elif "d" in raw:
        slices = (Slice(0, raw["n"], raw["d"], raw["v"], raw.get("t")),)
    else:
        slices = ()
    kept = tuple(Kept(h["f"], h["c"], h["v"], h["a"]) for h in raw.get("h", ()))
    return Row(raw["_id"], raw, slices, kept)


def inserted(bundle: Bundle) -> Document:
    """Return the document of a new bundle: one ready slice."""
    return {
        "_id": bundle.id,
        "p": bundle.priority,
        "d": bundle.due,
        "o": bundle.due,
        "e": bundle.enqueued_at,
        "n": bundle.count,
        "v": 0,
        "m": bundle.count,
        "b": bundle.data,
    }


def state_of(count: int, slices: tuple[Slice, ...], kept: tuple[Kept, ...]) -> Document:
    """Return the fields of :data:`STATE` that a bundle of ``count`` messages has; without any it is finished."""
    state: Document = {}
    slices = _joined(slices)
    if len(slices) == 1 and slices[0].count == count:
        (whole,) = slices
        state = {"d": whole.due, "v": whole.deliveries, "m": -count if whole.token else count}
        if whole.token:
            state["t"] = whole.token
    elif slices:
        state = {"d": min(each.due for each in slices), "m": 0, "s": [_encoded(each) for each in slices]}
        tokens = list(dict.fromkeys(each.token for each in slices if each.token))
        if tokens:
            state["t"] = tokens
    if kept:
        state["h"] = [{"f": each.first, "c": each.count, "v": each.deliveries, "a": each.at} for each in kept]
    return state


def _encoded(piece: Slice) -> dict[str, Any]:
    encoded = {"f": piece.first, "c": piece.count, "d": piece.due, "v": piece.deliveries}
    return encoded | {"t": piece.token} if piece.token else encoded


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
