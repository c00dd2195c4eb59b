"""The parts of bundles that a request names, by spans or by a number of messages: cut in memory."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter

import msgspec

from shardq.storage import slicing
from shardq.storage.mongodb.documents import ClaimOrder, Kept, Row, Slice
from shardq.storage.requests import Acknowledge, ClaimedSlice, Extend, Fenced, Release, Span
from shardq.storage.slicing import Range, gaps, joined, near, overlap, uncovered

__all__ = [
    "Piece",
    "as_stored",
    "by_bundle",
    "choose",
    "cut",
    "fenced",
    "finds_nothing",
    "passed_over",
    "without",
]


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
    wanted: dict[bytes | None, list[Range]] = {}
    for span in spans:
        wanted.setdefault(span.token, []).append((span.first, span.first + span.count))
    ranges_of = {token: joined(ranges) for token, ranges in wanted.items()}
    for each in row.slices:
        whole = (each.first, each.end)
        inside = overlap(whole, near(whole, ranges_of.get(each.token, ())))
        held += [each.part(*piece) for piece in inside]
        rest += [each.part(*piece) for piece in gaps(whole, inside)]
    return held, rest


def as_stored(span: Span, found: Mapping[bytes, Row], now: int) -> Span:
    """Return a span under `PENDING` with the token that its message has, if nobody holds that now: one that lapsed.

    A message that was released, or never held, has None.
    """
    slices = found[span.bundle_id].slices if span.bundle_id in found else ()
    stored = next((each for each in slices if each.first <= span.first < each.end), None)
    if stored is None or (stored.token is not None and stored.due > now):
        return span
    return msgspec.structs.replace(span, token=stored.token)


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
    """Divide spans into parts that are stored but not held, or moved elsewhere, and parts that are not stored."""
    ranges = _Ranges(seen)
    missing = [part for span in spans for part in uncovered(span, ranges.of(span, held=True))]
    return slicing.fenced(missing, lambda span: ranges.of(span, held=False))


def finds_nothing(request: Acknowledge | Extend | Release) -> Callable[[Fenced], bool]:
    """Return a test of an answer: True when none of the named messages is stored, so that nothing was done."""
    return lambda fenced: _messages(fenced.gone) == _messages(request.spans)


def _messages(spans: Iterable[Span]) -> int:
    return sum(span.count for span in spans)


class _Ranges:
    """Which parts of bundles a token holds, and which are stored otherwise; looked up once for each bundle."""

    def __init__(self, seen: Mapping[bytes, Row]) -> None:
        self._seen = seen
        self._known: dict[tuple[bytes, bytes | None, bool], list[Range]] = {}

    def of(self, span: Span, *, held: bool) -> Sequence[Range]:
        """Return the slices held under the span's token near it.

        Or those that are not, and those that were moved elsewhere.
        """
        if (row := self._seen.get(span.bundle_id)) is None:
            return ()
        key = (span.bundle_id, span.token, held)
        if (known := self._known.get(key)) is None:
            found = [(each.first, each.end) for each in row.slices if (each.token == span.token) is held]
            known = joined(found if held else [*found, *row.moved])
            self._known[key] = known
        return near((span.first, span.first + span.count), known)


class Piece(msgspec.Struct, frozen=True):
    """The part of a slice that a claim takes."""

    row: Row
    slice: Slice


def choose(found: Sequence[Row], limit: int, now: int, *, complete: bool) -> tuple[list[Piece], int]:
    """Choose deliverable slices up to the limit; unless ``complete``, none that a bundle not read yet may precede."""
    pieces: list[Piece] = []
    messages = 0
    last = None if complete else max([row.order for row in found])
    for place, row, each in _deliverable(found, now):
        if last is not None and place[:3] > last:
            break
        remaining = limit - messages
        taken = each if each.count <= remaining else each.part(each.first, each.first + remaining)
        pieces.append(Piece(row, taken))
        messages += taken.count
        if messages >= limit:
            break
    return pieces, messages


def _deliverable(found: Iterable[Row], now: int) -> Iterator[tuple[ClaimOrder, Row, Slice]]:
    """Return the slices that are due in the order of claims, reading no further ahead than it takes."""
    ahead: list[tuple[ClaimOrder, Row, Slice]] = []
    for row in found:
        start = (*row.order, -1)
        while ahead and ahead[0][0] < start:
            yield heapq.heappop(ahead)
        for each in row.slices:
            if each.due <= now:
                heapq.heappush(ahead, (row.place(each), row, each))
    while ahead:
        yield heapq.heappop(ahead)


def passed_over(
    chosen: Iterable[Row], held: Sequence[tuple[ClaimOrder, ClaimedSlice]], began: int, limit: int
) -> list[Piece]:
    """Return the free parts of the chosen bundles that come before the last held one, up to ``limit`` messages.

    Messages that were sent or fell due since the claim began are left out: they may go first, and nothing was passed
    over.
    """
    if not held:
        return []
    last = max(place for place, _ in held)
    waiting = sorted([row for row in chosen if row.slices], key=attrgetter("order"))
    free, _ = choose(waiting, limit, began, complete=True)
    return [piece for piece in free if piece.row.place(piece.slice) < last]
