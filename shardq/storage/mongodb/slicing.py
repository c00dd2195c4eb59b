"""What some spans name of a bundle: cut in memory, one bundle at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from shardq.storage.mongodb.documents import Kept, Row, Slice
from shardq.storage.requests import Fenced, Span
from shardq.storage.slicing import covered, gaps, overlap, uncovered

__all__ = ["by_bundle", "cut", "fenced", "without"]


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
    lost: list[Span] = []
    gone: list[Span] = []
    for span in spans:
        row = seen.get(span.bundle_id)
        slices = row.slices if row else ()
        lost += covered(span, [(each.first, each.end) for each in slices if each.token != span.token])
        moved = row.moved if row else ()
        for finished in uncovered(span, [(each.first, each.end) for each in slices]):
            lost += covered(finished, moved)
            gone += uncovered(finished, moved)
    return Fenced(tuple(lost), tuple(gone))
