"""The parts of spans that a set of lease rows still holds, and the state of the rest.

A lease row is one value, so it is cut in memory; the storage sees the value before and the value after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from shardq.errors import StoreUnavailable
from shardq.storage.cassandra.lease_rows import LeaseRow
from shardq.storage.cassandra.rows import Slice
from shardq.storage.cassandra.shard_rows import WideRow
from shardq.storage.requests import Fenced, Span
from shardq.storage.slicing import Range, fenced, gaps, overlap

__all__ = ["Cut", "became", "cut", "cut_out"]


class Cut(msgspec.Struct, frozen=True):
    """A lease row, what the spans name of it, and what they leave."""

    lease: LeaseRow
    named: tuple[Slice, ...]
    rest: tuple[Slice, ...]


def cut(leases: Sequence[LeaseRow], spans: Iterable[Span]) -> tuple[list[Cut], list[Span]]:
    """Cut the lease rows at the borders of the spans; return them, and the parts of spans that none holds."""
    ranges: dict[tuple[bytes, bytes], list[Range]] = {}
    for span in sorted(spans):
        _add(ranges.setdefault((span.token, span.bundle_id), []), (span.first, span.first + span.count))
    cuts = [each for lease in leases if lease.held and (each := _cut(lease, ranges)).named]
    held = _held(cuts)
    return cuts, [
        Span(bundle_id, first, end - first, token)
        for (token, bundle_id), wanted in ranges.items()
        if held.get((token, bundle_id)) != wanted
        for whole in wanted
        for first, end in gaps(whole, held.get((token, bundle_id), ()))
    ]


def cut_out(lease: LeaseRow, bundle_id: bytes, position: int) -> Cut:
    """Cut one message out of a lease row."""
    return _cut(lease, {(lease.id, bundle_id): [(position, position + 1)]})


def _cut(lease: LeaseRow, ranges: dict[tuple[bytes, bytes], list[Range]]) -> Cut:
    named: list[Slice] = []
    rest: list[Slice] = []
    for each in lease.slices:
        wanted = ranges.get((lease.id, each.bundle_id), ())
        whole = (each.first, each.end)
        if wanted == [whole]:
            named.append(each)
            continue
        named += (each.part(*piece) for piece in overlap(whole, wanted))
        rest += (each.part(*piece) for piece in gaps(whole, wanted))
    return Cut(lease, tuple(named), tuple(rest))


def _held(cuts: Iterable[Cut]) -> dict[tuple[bytes, bytes], list[Range]]:
    held: dict[tuple[bytes, bytes], list[Range]] = {}
    for part in cuts:
        for each in part.named:
            held.setdefault((part.lease.id, each.bundle_id), []).append((each.first, each.end))
    return held


def _add(ranges: list[Range], new: Range) -> None:
    """Add a range that begins no earlier than the others."""
    if ranges and new[0] <= ranges[-1][1]:
        ranges[-1] = (ranges[-1][0], max(ranges[-1][1], new[1]))
    else:
        ranges.append(new)


def became(
    row: WideRow, missing: Sequence[Span], stored: Callable[[], Iterable[tuple[bytes, Range]]]
) -> Fenced:
    """Divide spans into parts that are stored, here or elsewhere, and parts that are not.

    ``stored`` returns the found parts of their bundles, held or not. Parts that any read finds are lost. Parts that
    none finds are gone only where nothing moved during the last one. Else StoreUnavailable is raised: a client that
    acked a message a moment ago must not learn that it is lost.
    """
    ranges: dict[bytes, list[Range]] = {}

    def read() -> None:
        for bundle_id, one in (*stored(), *row.moves(span.bundle_id for span in missing)):
            ranges.setdefault(bundle_id, []).append(one)

    _, certain = row.undisturbed(read)
    found = fenced(missing, lambda span: ranges.get(span.bundle_id, ()))
    if found.gone and not certain:
        raise StoreUnavailable(
            "others change the shard all the time, so it is not known whether messages are gone: try again"
        )
    return found
