"""The documents of a shard, as values. Their fields are described in ``schema/mongodb/``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import msgspec

from shardq.storage.requests import Bundle
from shardq.storage.slicing import Range, overlap

__all__ = [
    "STATE",
    "WITHOUT_BODIES",
    "Document",
    "Kept",
    "Row",
    "Slice",
    "decode",
    "inserted",
    "moved_field",
    "state_of",
]

Document: TypeAlias = dict[str, Any]

STATE = ("d", "v", "t", "u", "m", "s", "h")
"""The fields that change during the life of a bundle."""

WITHOUT_BODIES = {"b": 0}


class Slice(msgspec.Struct, frozen=True):
    """Messages ``first`` .. ``first + count - 1``, held while there is a token."""

    first: int
    count: int
    due: int
    deliveries: int
    token: bytes | None = None
    unstarted: bool = False  # the delivery to who holds it is not counted yet

    @property
    def told(self) -> int:
        """The deliveries with that to who holds it."""
        return self.deliveries + self.unstarted

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
    moved: tuple[Range, ...] = ()  # what was finished because it is stored elsewhere

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
        slices = tuple(_slice(each) for each in raw["s"])
    elif "d" in raw:
        slices = (_slice(raw | {"f": 0, "c": raw["n"]}),)
    else:
        slices = ()
    kept = tuple(Kept(h["f"], h["c"], h["v"], h["a"]) for h in raw.get("h", ()))
    return Row(raw["_id"], raw, slices, kept, tuple((z["f"], z["f"] + z["c"]) for z in raw.get("z", ())))


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
        if whole.unstarted:
            state["u"] = True
    elif slices:
        state = {"d": min(each.due for each in slices), "m": 0, "s": [_encoded(each) for each in slices]}
        tokens = list(dict.fromkeys(each.token for each in slices if each.token))
        if tokens:
            state["t"] = tokens
    if kept:
        state["h"] = [{"f": each.first, "c": each.count, "v": each.deliveries, "a": each.at} for each in kept]
    return state


def moved_field(ranges: Iterable[Range]) -> list[Document]:
    """Return what a document has to say of messages that were moved elsewhere."""
    return [{"f": first, "c": end - first} for first, end in overlap((0, 2**62), ranges)]


def _slice(raw: Document) -> Slice:
    return Slice(raw["f"], raw["c"], raw["d"], raw["v"], raw.get("t"), raw.get("u", False))


def _encoded(piece: Slice) -> dict[str, Any]:
    encoded: dict[str, Any] = {"f": piece.first, "c": piece.count, "d": piece.due, "v": piece.deliveries}
    if piece.token:
        encoded["t"] = piece.token
    if piece.unstarted:
        encoded["u"] = True
    return encoded


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
