"""The parts in which a task sends its rows: the same ones in every attempt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa

from shardq.spark.columns import NOTHING, Columns, Rows, headers_of, names_of
from shardq.spark.identities import numbers_of, with_different_ids
from shardq.spark.options import SendOptions
from shardq.spark.run_parts import RunPart
from shardq.spark.spool import Spool, cut

__all__ = ["parts_of"]

BUNDLES_TO_A_PART = 32  # about; from a part's first bundle to the next one's
_MAX_BUNDLES = 1 << 20


def parts_of(
    batches: Iterable[pa.RecordBatch], columns: Columns, options: SendOptions, *, partition: int, start: int
) -> Iterator[RunPart]:
    """Cut the rows of a partition into parts; the first shard to write is ``start`` plus the partition's number."""
    rows = (columns.rows(batch) for batch in with_different_ids(batches, columns.id) if batch.num_rows)
    ordered = _as_they_come(rows) if options.input_order == "stable" else _sorted(rows)
    for number, part in enumerate(ordered):
        turn = (start + partition + number * BUNDLES_TO_A_PART) % _MAX_BUNDLES
        yield _part(part, f"{partition}-{number}", turn)


def _sorted(rows: Iterable[Rows]) -> Iterator[Rows]:
    with Spool() as spool:
        for some in rows:
            spool.add(some)
        yield from spool.parts()


def _as_they_come(rows: Iterable[Rows]) -> Iterator[Rows]:
    rest: list[Rows] = []
    for some in rows:
        waiting = Rows.joined([*rest, some])
        taken = 0
        for places in cut(_sizes(waiting), last=False):
            yield waiting.pick(places)
            taken = places.stop
        rest = [waiting.pick(slice(taken, len(waiting)))] if taken < len(waiting) else []
    yield from rest


def _sizes(rows: Rows) -> Any:
    return np.fromiter(map(len, rows.bodies), dtype=np.int64, count=len(rows))


def _part(rows: Rows, name: str, turn: int) -> RunPart:
    names = [] if rows.names is None else [names_of(packed) for packed in rows.names]
    return RunPart(
        name=name,
        fingerprint=_fingerprint(rows),
        turn=turn,
        bodies=rows.bodies.tolist(),
        headers=None if rows.headers is None else [headers_of(packed) for packed in rows.headers],
        priorities=None if rows.priorities is None else rows.priorities.tolist(),
        dues=_numbers(rows.dues),
        lanes=None if rows.lanes is None else rows.lanes.tolist(),
        delays=_numbers(rows.delays),
        ttls=_numbers(rows.ttls),
        groups=_texts([one.group for one in names]),
        dedupe_keys=_texts([one.dedupe_key for one in names]),
        unique_keys=_texts([one.unique_key for one in names]),
    )


def _numbers(column: Any) -> list[int | None] | None:
    return None if column is None else [None if one == NOTHING else one for one in column.tolist()]


def _texts(column: list[str | None]) -> list[str | None] | None:
    return column if any(one is not None for one in column) else None


def _fingerprint(rows: Rows) -> str:
    """The digest of who the rows are, and of what decides which of them share a bundle."""
    names = None if rows.names is None else numbers_of(rows.names)
    digest = blake2b(digest_size=16)
    for column in (rows.identities, rows.priorities, rows.dues, rows.lanes):
        digest.update(b"" if column is None else column.tobytes())
    for role, column in (("delay", rows.delays), ("ttl", rows.ttls), ("names", names)):
        if column is not None:  # seconds of one role are not those of another
            digest.update(role.encode() + column.tobytes())
    return digest.hexdigest()
