"""Messages of named claims by their places: a bundle, and a position in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from shardq.core.receiving.claim_entries import Taken
from shardq.held import HeldSlice, Selection
from shardq.storage.requests import Span

__all__ = ["Place", "among", "in_order", "neighbours", "parts", "places_of"]

Place = tuple[bytes, int]


def in_order(taken: Iterable[Taken | Span]) -> Iterator[Place]:
    """The places of messages, in their order."""
    return ((one.bundle_id, one.first + place) for one in taken for place in range(one.count))


def places_of(taken: Iterable[Taken | Span]) -> set[Place]:
    """The places of messages, as a set."""
    return set(in_order(taken))


def neighbours(places: Iterable[Place], token: bytes) -> list[Span]:
    """The messages as spans of neighbours, in their order."""
    spans: list[Span] = []
    for bundle_id, position in places:
        last = spans[-1] if spans else None
        if last and (last.bundle_id, last.first + last.count) == (bundle_id, position):
            spans[-1] = msgspec.structs.replace(last, count=last.count + 1)
        else:
            spans.append(Span(bundle_id, position, 1, token))
    return spans


def among(piece: HeldSlice, places: set[Place], positions: Iterable[int] | None = None) -> Selection:
    """Those of a slice's messages that are among the places."""
    own = range(piece.count) if positions is None else positions
    return Selection(piece, [place for place in own if (piece.bundle.id, piece.first + place) in places])


def parts(held: Iterable[HeldSlice], taken: Taken) -> Iterator[HeldSlice]:
    """The parts of held slices of its bundle that an earlier attempt got."""
    for piece in held:
        if not taken.is_before(piece):
            start = max(piece.first, taken.first)
            end = min(piece.first + piece.count, taken.first + taken.count)
            if start < end:
                yield piece.part(start - piece.first, end - start)
