"""The order within groups: which slice is the first of its group, and the ones after it.

The slices of a group are ordered by their places. Two rules hold at the end of every transaction:

- The first slice of a group has its due time, or the end of its lease. All others are ``BEHIND``, which is added to
  their due times, so that neither claims nor probes find them.
- The held messages of a group are its front part, and one claim holds all of them.

A change of a group holds its lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import dropwhile

from shardq.storage.postgresql.connections import Id, Sql
from shardq.storage.postgresql.rows import BEHIND, CHOSEN, PIECE, UNDELIVERED, Change, Piece
from shardq.storage.requests import Bundle, Span

__all__ = [
    "arm",
    "groups_of",
    "leave_alone",
    "of_bundles",
    "places_at_end",
    "put_back",
    "strip",
]

_GROUPS = """
    SELECT DISTINCT x.message_group FROM unnest($2::uuid[]) AS a (bundle_id) CROSS JOIN LATERAL (
        SELECT s.message_group FROM @slice s
        WHERE s.shard_key = $1 AND s.bundle_id = a.bundle_id AND s.processed_at IS NULL LIMIT 1
    ) AS x
"""
_LAST = """
    SELECT a.message_group, x.place FROM unnest($2::bytea[]) AS a (message_group) CROSS JOIN LATERAL (
        SELECT s.place + s.count AS place FROM @slice s
        WHERE s.shard_key = $1 AND s.message_group = a.message_group AND s.message_group <> ''
        AND s.processed_at IS NULL
        ORDER BY s.place DESC LIMIT 1
    ) AS x
"""
_ARM = f"""
    UPDATE @slice s SET due = s.due - {BEHIND}
    FROM unnest($2::bytea[]) AS g (message_group) CROSS JOIN LATERAL (
        SELECT s.shard_key, s.bundle_id, s.first FROM @slice s
        WHERE s.shard_key = $1 AND s.message_group = g.message_group AND s.message_group <> ''
        AND s.processed_at IS NULL
        ORDER BY s.place LIMIT 1
    ) AS a
    WHERE {CHOSEN} AND s.due >= {BEHIND}
"""
# The claim that holds what was named holds the front part, so the rest of that is found by its token.
_HELD_BEHIND = f"""
    SELECT {PIECE} FROM @slice s
    JOIN unnest($3::bytea[], $4::bigint[]) AS g (message_group, place) ON s.message_group = g.message_group
    WHERE s.token = ANY ($2::uuid[]) AND s.shard_key = $1 AND s.place > g.place AND s.processed_at IS NULL
    ORDER BY s.message_group, s.place
"""
_STRIP = Change(f"due = $4 + {BEHIND}, token = NULL, unstarted = false")
_PUT_BACK = Change(f"""
    due = CASE WHEN {UNDELIVERED} THEN least(s.sent_due, $4) ELSE $4 END + {BEHIND}, token = NULL,
    deliveries = s.deliveries - 1 + s.unstarted::int, unstarted = false
""")


def of_bundles(sql: Sql, shard_key: int, ids: Iterable[bytes]) -> list[bytes]:
    """Return the groups of bundles that are stored."""
    asked = [Id(each) for each in sorted(set(ids))]
    return [group for (group,) in sql.all(_GROUPS, shard_key, asked)] if asked else []


def groups_of(pieces: Iterable[Piece]) -> list[bytes]:
    """Return the groups of some slices."""
    return sorted({piece.group for piece in pieces})


def places_at_end(sql: Sql, shard_key: int, bundles: Sequence[Bundle]) -> list[int]:
    """Return the places of bundles that come at the ends of their groups, in their order."""
    of_all = [bundle.group.encode() for bundle in bundles]
    ends: dict[bytes, int] = dict(sql.all(_LAST, shard_key, sorted(set(of_all))))
    places: list[int] = []
    for group, bundle in zip(of_all, bundles, strict=True):
        places.append(ends.get(group, 0))
        ends[group] = places[-1] + bundle.count
    return places


def arm(sql: Sql, shard_key: int, groups: Sequence[bytes]) -> None:
    """Let the first slice of each group be delivered when it is due."""
    if groups:
        sql.run(_ARM, shard_key, sorted(set(groups)))


def first_places(pieces: Iterable[Piece]) -> dict[bytes, int]:
    """Return the place of the first of these slices in each group."""
    places: dict[bytes, int] = {}
    for piece in pieces:
        places[piece.group] = min(piece.place, places.get(piece.group, piece.place))
    return places


def put_back(sql: Sql, shard_key: int, given_back: Sequence[Piece], now: int) -> None:
    """Release, without counting the delivery, messages held behind slices that are released."""
    named = {(piece.bundle_id, piece.first) for piece in given_back}
    held = _held_behind(sql, shard_key, given_back)
    _PUT_BACK.run(sql, shard_key, [each for each in held if (each.bundle_id, each.first) not in named], now)


def leave_alone(sql: Sql, shard_key: int, kept: Sequence[Piece], now: int) -> None:
    """Release, without counting the delivery, messages held behind slices that stay held."""
    named = {(piece.bundle_id, piece.first) for piece in kept}
    of_groups: dict[bytes, list[Piece]] = {}
    for each in _held_behind(sql, shard_key, kept):
        of_groups.setdefault(each.group, []).append(each)
    behind: list[Piece] = []
    for held in of_groups.values():
        behind += dropwhile(lambda each: (each.bundle_id, each.first) in named, held)
    _PUT_BACK.run(sql, shard_key, behind, now)


def strip(sql: Sql, shard_key: int, pieces: Sequence[Piece], now: int) -> None:
    """Take slices from whoever holds them, to wait behind what another claim took."""
    _STRIP.run(sql, shard_key, pieces, now)


def place_of(span: Span, pieces: Iterable[Piece]) -> int:
    """Return the place of the first message of a span, which one of the slices holds."""
    return next(
        each.place + span.first - each.first
        for each in pieces
        if each.bundle_id == span.bundle_id and each.first <= span.first < each.end
    )


def _held_behind(sql: Sql, shard_key: int, pieces: Sequence[Piece]) -> list[Piece]:
    tokens = sorted({piece.token for piece in pieces if piece.token is not None})
    if not tokens:
        return []
    places = first_places(pieces)
    rows = sql.all(
        _HELD_BEHIND, shard_key, [Id(each) for each in tokens], list(places), list(places.values())
    )
    return [Piece(*row) for row in rows]
