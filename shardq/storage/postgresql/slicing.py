"""Cutting slices so that some messages of a bundle have slices of their own.

A request names spans of messages; the slices that hold them may be longer, shorter or somebody else's by then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from shardq.storage.postgresql.connections import Id, Row, Sql
from shardq.storage.postgresql.directory import RowKeys
from shardq.storage.postgresql.rows import BEHIND, CHOSEN, PIECE, Piece, named
from shardq.storage.requests import Fenced, Span
from shardq.storage.slicing import Range, covered, fenced, gaps, joined, uncovered

__all__ = ["Held", "cut", "cut_out", "hold", "split"]

# Slices that begin within a span, and the last that begins before it, which may end before it too.
_COVERING = f"""
    SELECT x.* FROM unnest($2::uuid[], $3::int[], $4::int[]) AS a (bundle_id, start, stop) CROSS JOIN LATERAL (
        SELECT {PIECE} FROM @slice s
        WHERE s.shard_key = $1 AND s.bundle_id = a.bundle_id AND s.first < a.stop AND s.first >= coalesce((
            SELECT max(e.first) FROM @slice e
            WHERE e.shard_key = $1 AND e.bundle_id = a.bundle_id AND e.first <= a.start
        ), 0)
        ORDER BY s.first FOR UPDATE OF s
    ) AS x
"""
# For changes that delete none: acks of other parts of a bundle may rely on these slices meanwhile.
_COVERING_KEPT = _COVERING.replace("FOR UPDATE", "FOR NO KEY UPDATE")
_SEEN = _COVERING.replace(" FOR UPDATE OF s", "")
_TAILS = named("$4::uuid[], $5::int[], $6::int[], $7::int[]", "bundle_id, first, start, count")
_HEADS = named("$2::uuid[], $3::int[], $8::int[]", "bundle_id, first, count")
# Of a group, what is cut off is behind the front part.
_SPLIT = f"""
    WITH tails AS (
        INSERT INTO @slice (
            shard_key, bundle_id, first, count, sent_count, priority, due, deliveries, unstarted, token, processed_at,
            sent_due, enqueued_at, expires_at, message_group, place, data
        )
        SELECT
            s.shard_key, s.bundle_id, a.start, a.count, s.sent_count, s.priority,
            s.due + CASE WHEN s.message_group = '' OR s.due >= {BEHIND} THEN 0 ELSE {BEHIND} END,
            s.deliveries, s.unstarted, s.token, s.processed_at, s.sent_due, s.enqueued_at, s.expires_at,
            s.message_group, s.place + CASE WHEN s.message_group = '' THEN 0 ELSE a.start - s.first END, s.data
        FROM {_TAILS}
        JOIN @slice s ON {CHOSEN}
    )
    UPDATE @slice s SET count = a.count FROM {_HEADS}
    WHERE {CHOSEN}
"""
_MOVED = """
    SELECT f.bundle_id, f.first, f.first + f.count FROM @finished f
    WHERE f.bundle_id = ANY ($2::uuid[]) AND f.queue_key = $1 AND f.first >= 0
"""


class Held(msgspec.Struct, frozen=True):
    """The slices that hold what is still held of some spans, which of their messages that is, and what is not."""

    slices: tuple[tuple[Piece, tuple[Range, ...]], ...]
    fenced: Fenced


def hold(
    sql: Sql,
    row_keys: RowKeys | None,
    queue_key: int | None,
    spans: Sequence[Span],
    now: int = 0,
    *,
    keeps: bool = False,
) -> Held:
    """Lock the slices that hold messages of the spans, and return those that are still held under their tokens.

    Under `PENDING` those are meant that nobody holds. Whether a lease has expired by ``now`` is known only when its
    slice is locked: until then its holder may extend it.

    A request that ``keeps`` all slices does not wait for acks of other parts of their bundles.

    Of what is not stored any more, what was moved elsewhere is lost.
    """
    found = (
        _stored(sql, row_keys, spans, _COVERING_KEPT if keeps else _COVERING) if row_keys and spans else {}
    )
    wanted: dict[tuple[bytes, int], list[Range]] = {}
    lost, gone = list[Span](), list[Span]()
    for span in spans:
        end = span.first + span.count
        stored = [
            each for each in found.get(span.bundle_id, ()) if each.first < end and each.end > span.first
        ]
        others: list[Range] = []
        for each in stored:
            if each.is_held(span, now):
                part = (max(each.first, span.first), min(each.end, end))
                wanted.setdefault((each.bundle_id, each.first), []).append(part)
            else:
                others.append((each.first, each.end))
        lost += covered(span, others)
        gone += uncovered(span, [(each.first, each.end) for each in stored])
    slices = tuple(
        (each, tuple(joined(ranges)))
        for of_bundle in found.values()
        for each in of_bundle
        if (ranges := wanted.get((each.bundle_id, each.first))) is not None
    )
    if not gone:
        return Held(slices, Fenced(tuple(lost)))
    moved = _moved(sql, queue_key, gone)
    answer = fenced(gone, lambda span: moved.get(span.bundle_id, ()))
    return Held(slices, Fenced((*lost, *answer.lost), answer.gone))


def _stored(sql: Sql, row_keys: RowKeys, spans: Sequence[Span], covering: str) -> dict[bytes, list[Piece]]:
    """Return what is stored of the bundles within the spans, without the history, and lock it."""
    stored: dict[bytes, list[Piece]] = {}
    for piece in {row[:2]: Piece(*row) for row in _covering(sql, row_keys, spans, covering)}.values():
        if not piece.is_processed:
            stored.setdefault(piece.bundle_id, []).append(piece)
    return stored


def _covering(sql: Sql, row_keys: RowKeys, spans: Sequence[Span], covering: str = _COVERING) -> list[Row]:
    """Lock the slices that cover the spans, and return them.

    Another transaction may have cut or removed one while this waited for it. The statement that waited does not see
    the parts that were cut off; one that begins afterwards does.
    """
    asked = sorted({(span.bundle_id, span.first, span.first + span.count) for span in spans})
    ids, starts, ends = zip(*asked, strict=True)
    where = row_keys.shard_key, [Id(each) for each in ids], list(starts), list(ends)
    while True:
        rows = sql.all(covering, *where)
        found = {row[:2]: Piece(*row) for row in rows}
        if all(_is_whole(span, found.get((span.bundle_id, span.first))) for span in spans):
            return rows
        if {row[:2] for row in sql.all(_SEEN, *where)} == found.keys():
            return rows


def _is_whole(span: Span, piece: Piece | None) -> bool:
    return piece is not None and piece.count == span.count and piece.holder == span.token


def _moved(sql: Sql, queue_key: int | None, spans: Iterable[Span]) -> dict[bytes, list[Range]]:
    moved: dict[bytes, list[Range]] = {}
    if queue_key is not None:
        ids = sorted({span.bundle_id for span in spans})
        for bundle_id, first, end in sql.all(_MOVED, queue_key, [Id(each) for each in ids]):
            moved.setdefault(bundle_id, []).append((first, end))
    return moved


def cut(sql: Sql, row_keys: RowKeys, slices: Iterable[tuple[Piece, Sequence[Range]]]) -> list[Piece]:
    """Cut slices at the borders of these ranges, and return the pieces that are the ranges.

    Apart from the cuts nothing changes: every piece keeps its due time, token and deliveries.
    """
    chosen: list[Piece] = []
    heads: list[Piece] = []
    tails: list[tuple[Piece, Piece]] = []
    for each, ranges in slices:
        parts = sorted([*ranges, *gaps((each.first, each.end), ranges)])
        pieces = [
            replace(
                each,
                first=first,
                count=end - first,
                place=each.place + (first - each.first if each.group else 0),
                is_first=each.is_first and first == each.first,
            )
            for first, end in parts
        ]
        chosen += [piece for piece in pieces if (piece.first, piece.end) in ranges]
        if len(pieces) > 1:
            heads.append(pieces[0])
            tails += [(each, piece) for piece in pieces[1:]]
    if heads:
        _split(sql, row_keys, heads, tails)
    return chosen


def split(sql: Sql, row_keys: RowKeys, piece: Piece, count: int) -> tuple[Piece, Piece]:
    """Leave the first ``count`` messages to the slice, and return both parts."""
    border = piece.first + count
    head, tail = cut(sql, row_keys, [(piece, [(piece.first, border), (border, piece.end)])])
    return head, tail


def _split(sql: Sql, row_keys: RowKeys, heads: Sequence[Piece], tails: Sequence[tuple[Piece, Piece]]) -> None:
    sql.run(
        _SPLIT,
        row_keys.shard_key,
        [Id(each.bundle_id) for each in heads],
        [each.first for each in heads],
        [Id(each.bundle_id) for _, each in tails],
        [whole.first for whole, _ in tails],
        [each.first for _, each in tails],
        [each.count for _, each in tails],
        [each.count for each in heads],
    )


def cut_out(sql: Sql, row_keys: RowKeys, bundle_id: bytes, position: int) -> Piece | None:
    """Return a slice made to hold this message alone, whatever its state; None without one."""
    span = Span(bundle_id, position, 1, b"")
    found = [each for row in _covering(sql, row_keys, [span]) if (each := Piece(*row)).end > position]
    return cut(sql, row_keys, [(found[0], [(position, position + 1)])])[0] if found else None
