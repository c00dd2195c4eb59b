"""Ranges of positions in a bundle, (first, end) with the end not included, and what a request names of them."""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import TypeAlias

import msgspec

from shardq.storage.requests import PENDING, Acknowledge, Fenced, Span

__all__ = [
    "Range",
    "covered",
    "fenced",
    "gaps",
    "joined",
    "near",
    "overlap",
    "pending_in",
    "renamed",
    "uncovered",
]

Range: TypeAlias = tuple[int, int]


def overlap(whole: Range, ranges: Iterable[Range]) -> list[Range]:
    """Return the parts of a range that others cover, in order, neighbours joined."""
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


def joined(ranges: Iterable[Range]) -> list[Range]:
    """Return the ranges in order, neighbours joined."""
    return overlap((0, sys.maxsize), ranges)


def near(whole: Range, ranges: Sequence[Range]) -> Sequence[Range]:
    """Return those of some ranges that touch another one; they are in order and joined."""
    start = bisect_left(ranges, whole[0], key=itemgetter(1))
    return ranges[start : bisect_right(ranges, whole[1], start, key=itemgetter(0))]


def gaps(whole: Range, ranges: Iterable[Range]) -> list[Range]:
    """Return the parts of a range that others do not cover, in order."""
    found: list[Range] = []
    at = whole[0]
    for first, end in overlap(whole, ranges):
        if at < first:
            found.append((at, first))
        at = end
    return [*found, (at, whole[1])] if at < whole[1] else found


def covered(span: Span, ranges: Iterable[Range]) -> list[Span]:
    """Return the parts of a span that ranges of its bundle cover, neighbours joined."""
    return [_part(span, each) for each in overlap((span.first, span.first + span.count), ranges)]


def uncovered(span: Span, ranges: Iterable[Range]) -> list[Span]:
    """Return the parts of a span that ranges of its bundle do not cover."""
    return [_part(span, each) for each in gaps((span.first, span.first + span.count), ranges)]


def fenced(missing: Iterable[Span], elsewhere: Callable[[Span], Iterable[Range]]) -> Fenced:
    """Divide spans that are not held into parts that are stored all the same, and parts that are gone.

    ``elsewhere`` returns the ranges of a span's bundle that others hold, that wait, or that were moved.
    """
    ranges = [(span, list(elsewhere(span))) for span in missing]
    return Fenced(
        lost=tuple(part for span, stored in ranges for part in covered(span, stored)),
        gone=tuple(part for span, stored in ranges for part in uncovered(span, stored)),
    )


def _part(span: Span, piece: Range) -> Span:
    return Span(span.bundle_id, piece[0], piece[1] - piece[0], span.token)


def pending_in(request: Acknowledge) -> Span | None:
    """Return the span under `PENDING`; None for a request of messages that are held."""
    return request.spans[0] if len(request.spans) == 1 and request.spans[0].token == PENDING else None


def renamed(request: Acknowledge, answer: Fenced) -> Fenced:
    """Return the answer to a request, with its spans under `PENDING` if those of the request are."""
    if pending_in(request) is None:
        return answer
    lost, gone = (
        tuple(msgspec.structs.replace(span, token=PENDING) for span in each)
        for each in (answer.lost, answer.gone)
    )
    return Fenced(lost, gone)
