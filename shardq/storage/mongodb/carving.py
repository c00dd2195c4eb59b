"""What some spans name of a bundle: cut in memory, one bundle at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from shardq.storage.mongodb.documents import Kept, Row, Slice
from shardq.storage.requests import Fenced, Span

__all__ = ["by_bundle", "cut", "fenced", "without"]

Range: TypeAlias = tuple[int, int]


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
        inside = _overlap((each.first, each.end), ranges)
        held += [each.part(*piece) for piece in inside]
        rest += [each.part(*piece) for piece in _gaps((each.first, each.end), inside)]
    return held, rest


def without(kept: Iterable[Kept], position: int) -> tuple[Kept, ...]:
    """Return what is kept but for one message."""
    return tuple(
        Kept(first, end - first, each.deliveries, each.at)
        for each in kept
        for first, end in _gaps(
            (each.first, each.end), _overlap((position, position + 1), [(each.first, each.end)])
        )
    )


def fenced(spans: Sequence[Span], seen: Mapping[bytes, Row]) -> Fenced:
    """Tell what of the spans was stored but not held, and what was not stored."""
    lost: list[Span] = []
    gone: list[Span] = []
    for span in spans:
        row = seen.get(span.bundle_id)
        slices = row.slices if row else ()
        whole = (span.first, span.first + span.count)
        others = [(each.first, each.end) for each in slices if each.token != span.token]
        lost += [_part(span, piece) for piece in _overlap(whole, others)]
        gone += [_part(span, piece) for piece in _gaps(whole, [(each.first, each.end) for each in slices])]
    return Fenced(tuple(lost), tuple(gone))


def _part(span: Span, piece: Range) -> Span:
    return Span(span.bundle_id, piece[0], piece[1] - piece[0], span.token)


def _overlap(whole: Range, ranges: Iterable[Range]) -> list[Range]:
    """Return the parts of a range that others cover, neighbours joined."""
    joined: list[Range] = []
    for first, end in sorted(ranges):
        start, stop = max(first, whole[0]), min(end, whole[1])
        if start >= stop:
            continue
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
        else:
            joined.append((start, stop))
    return joined


def _gaps(whole: Range, ranges: Iterable[Range]) -> list[Range]:
    """Return the parts of a range that others do not cover."""
    gaps: list[Range] = []
    at = whole[0]
    for first, end in _overlap(whole, ranges):
        if at < first:
            gaps.append((at, first))
        at = end
    return [*gaps, (at, whole[1])] if at < whole[1] else gaps
