"""What of some spans a set of holdings still holds.

A holding is one value, so it is cut in memory; the storage sees the value before and the value after.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from shardq.storage.cassandra.lease_rows import Holding
from shardq.storage.cassandra.rows import Slice
from shardq.storage.requests import Span
from shardq.storage.slicing import Range, gaps, overlap

__all__ = ["Carved", "carve", "cut_out"]


class Carved(msgspec.Struct, frozen=True):
    """A holding, what the spans name of it, and what they leave."""

    holding: Holding
    named: tuple[Slice, ...]
    rest: tuple[Slice, ...]


def carve(holdings: Sequence[Holding], spans: Iterable[Span]) -> tuple[list[Carved], list[Span]]:
    """Cut the holdings at the borders of the spans; return them, and the parts of spans that none holds."""
    ranges: dict[tuple[bytes, bytes], list[Range]] = {}
    for span in sorted(spans):
        _add(ranges.setdefault((span.token, span.bundle_id), []), (span.first, span.first + span.count))
    carved = [each for holding in holdings if holding.held and (each := _cut(holding, ranges)).named]
    held = _held(carved)
    return carved, [
        Span(bundle_id, first, end - first, token)
        for (token, bundle_id), wanted in ranges.items()
        if held.get((token, bundle_id)) != wanted
        for whole in wanted
        for first, end in gaps(whole, held.get((token, bundle_id), ()))
    ]


def cut_out(holding: Holding, bundle_id: bytes, position: int) -> Carved:
    """Cut one message out of a holding."""
    return _cut(holding, {(holding.id, bundle_id): [(position, position + 1)]})


def _cut(holding: Holding, ranges: dict[tuple[bytes, bytes], list[Range]]) -> Carved:
    named: list[Slice] = []
    rest: list[Slice] = []
    for each in holding.slices:
        wanted = ranges.get((holding.id, each.bundle_id), ())
        whole = (each.first, each.end)
        if wanted == [whole]:
            named.append(each)
            continue
        named += (each.part(*piece) for piece in overlap(whole, wanted))
        rest += (each.part(*piece) for piece in gaps(whole, wanted))
    return Carved(holding, tuple(named), tuple(rest))


def _held(carved: Iterable[Carved]) -> dict[tuple[bytes, bytes], list[Range]]:
    held: dict[tuple[bytes, bytes], list[Range]] = {}
    for part in carved:
        for each in part.named:
            held.setdefault((part.holding.id, each.bundle_id), []).append((each.first, each.end))
    return held


def _add(ranges: list[Range], new: Range) -> None:
    """Add a range that begins no earlier than the others."""
    if ranges and new[0] <= ranges[-1][1]:
        ranges[-1] = (ranges[-1][0], max(ranges[-1][1], new[1]))
    else:
        ranges.append(new)
