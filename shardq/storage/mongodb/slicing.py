"""What a request names of bundles, by spans or by a number of messages: cut in memory."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from shardq.storage import slicing
from shardq.storage.mongodb.documents import Kept, Row, Slice
from shardq.storage.requests import Fenced, Span
from shardq.storage.slicing import Range, gaps, overlap, uncovered

__all__ = ["Piece", "by_bundle", "choose", "cut", "fenced", "order_of", "without"]


def by_bundle(spans: Iterable[Span]) -> dict[bytes, list[Span]]:
    """Return the spans of each bundle."""
    grouped: dict[bytes, list[Span]] = {}
    for span in spans:
        grouped.setdefault(span.bundle_id, []).append(span)
    return grouped


def cut(row: Row, spans: Iterable[Span]) -> tuple[list[Slice], list[Slice]]:
    """Cut the slices at the borders of what the spans hold of them; return what they hold and the rest."""
    held: list[Slice] = []
    rest: list[Slice] = []
    wanted = list(spans)
    for each in row.slices:
        ranges = [(span.first, span.first + span.count) for span in wanted if span.token == each.token]
        inside = overlap((each.first, each.end), ranges)
        held += [each.part(*piece) for piece in inside]
        rest += [each.part(*piece) for piece in gaps((each.first, each.end), inside)]
    return held, rest


def without(kept: Iterable[Kept], position: int) -> tuple[Kept, ...]:
    """Return what is kept but for one message."""
    return tuple(
        Kept(first, end - first, each.deliveries, each.at)
        for each in kept
        for first, end in gaps(
            (each.first, each.end), overlap((position, position + 1), [(each.first, each.end)])
        )
    )


def fenced(spans: Sequence[Span], seen: Mapping[bytes, Row]) -> Fenced:
    """Tell what of the spans was stored but not held, or moved elsewhere, and what was not stored."""
    missing = [part for span in spans for part in uncovered(span, _ranges(seen, span, held=True))]
    return slicing.fenced(missing, lambda span: _ranges(seen, span, held=False))


def _ranges(seen: Mapping[bytes, Row], span: Span, *, held: bool) -> list[Range]:
    """Return what is held under the span's token of its bundle; or what is not, and what was moved elsewhere."""
    if (row := seen.get(span.bundle_id)) is None:
        return []
    ranges = [(each.first, each.end) for each in row.slices if (each.token == span.token) is held]
    return ranges if held else [*ranges, *row.moved]


class Piece(msgspec.Struct, frozen=True):
    """What a claim takes of a slice."""

    row: Row
    slice: Slice


def choose(found: Sequence[Row], limit: int, now: int, *, complete: bool) -> tuple[list[Piece], int]:
    """Choose deliverable slices up to the limit; unless ``complete``, none that a bundle not read yet may precede."""
    pieces: list[Piece] = []
    messages = 0
    last = None if complete else max(map(order_of, found))
    for place, row, each in _deliverable(found, now):
        if last is not None and place[:3] > last:
            break
        taken = each.part(each.first, min(each.end, each.first + limit - messages))
        pieces.append(Piece(row, taken))
        messages += taken.count
        if messages >= limit:
            break
    return pieces, messages


def _deliverable(found: Iterable[Row], now: int) -> Iterator[tuple[tuple[int, int, bytes, int], Row, Slice]]:
    """Return the slices that are due in the order of claims, reading no further ahead than it takes."""
    ahead: list[tuple[tuple[int, int, bytes, int], Row, Slice]] = []
    for row in found:
        start = (row.priority, row.due, row.id, -1)
        while ahead and ahead[0][0] < start:
            yield heapq.heappop(ahead)
        for each in row.slices:
            if each.due <= now:
                heapq.heappush(ahead, (row.place(each), row, each))
    while ahead:
        yield heapq.heappop(ahead)


def order_of(row: Row) -> tuple[int, int, bytes]:
    """Return what bundles are ordered by in the claim index."""
    return row.priority, row.due, row.id
