"""What became of messages that are not held any more under a token."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from shardq.errors import StoreUnavailable
from shardq.storage.cassandra.shard_rows import WideRow
from shardq.storage.requests import Fenced, Span
from shardq.storage.slicing import Range, fenced

__all__ = ["became"]


def became(
    row: WideRow, missing: Sequence[Span], stored: Callable[[], Iterable[tuple[bytes, Range]]]
) -> Fenced:
    """Tell what of the spans is stored, here or elsewhere, from what is not.

    ``stored`` returns what is found of their bundles, whoever holds it. What any look finds is lost. What none finds is
    gone only where nothing moved during the last one. Else StoreUnavailable is raised: to call it lost could tell who
    acked it a moment ago that somebody else has it.
    """
    ranges: dict[bytes, list[Range]] = {}

    def look() -> None:
        for bundle_id, one in (*stored(), *row.moves(span.bundle_id for span in missing)):
            ranges.setdefault(bundle_id, []).append(one)

    _, certain = row.undisturbed(look)
    found = fenced(missing, lambda span: ranges.get(span.bundle_id, ()))
    if found.gone and not certain:
        raise StoreUnavailable(
            "others change the shard all the time, so it is not known whether messages are gone: try again"
        )
    return found
