"""The order within groups: which slice is the first of its group, and the ones after it.

The slices of a group are ordered by their places. Two rules hold at the end of every transaction:

- The first slice of a group has its due time, or the end of its lease. All others are ``BEHIND``, which is added to
  their due times, so that neither claims nor probes find them.
- The held messages of a group are its front part, and one claim holds all of them.

A change of a group holds its lock. A claim holds the locks of the groups that it takes from, or if it may take from
many, the whole shard. It does not wait for groups that others change just then, but takes from the rest.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from itertools import dropwhile

import msgspec

from shardq.storage.postgresql.connections import Id, Row, Sql
from shardq.storage.postgresql.directory import RowKeys
from shardq.storage.postgresql.locks import FEW, try_lock, try_lock_shard
from shardq.storage.postgresql.read_cursors import HAS_ITS_TURN, LATE, WATERMARKS
from shardq.storage.postgresql.rows import (
    BEHIND,
    BUNDLE,
    CHOSEN,
    HEADS,
    MANY_HEADS,
    PIECE,
    PIECES,
    STILL_BEHIND,
    TURN,
    UNDELIVERED,
    Change,
    Piece,
    named,
)
from shardq.storage.postgresql.slicing import cut
from shardq.storage.requests import Bundle, Claim, Span

__all__ = [
    "SELDOM",
    "arm",
    "leave_alone",
    "of_bundles",
    "places_at_end",
    "put_back",
    "strip",
    "take",
    "vacated",
]

SELDOM = 16
"""On average, one append in this number of those that begin a group anew raises the low place of the group."""

# Without a condition that partial indexes have: with one, a plan read all of the shard.
_GROUPS = """
    SELECT DISTINCT x.message_group FROM unnest($2::uuid[]) AS a (bundle_id) CROSS JOIN LATERAL (
        SELECT s.message_group FROM @slice s
        WHERE s.shard_key = $1 AND s.bundle_id = a.bundle_id LIMIT 1
    ) AS x
"""
# Where each group ends, and its low place; nothing of the group is below that, so dead entries there are not crossed.
_ENDS = """
    SELECT g.message_group, l.place, x.place
    FROM unnest($2::bytea[]) AS g (message_group) LEFT JOIN LATERAL (
        SELECT l.place FROM @group_low l WHERE l.shard_key = $1 AND l.message_group = g.message_group
        ORDER BY l.place DESC LIMIT 1
    ) AS l ON true LEFT JOIN LATERAL (
        SELECT s.place + s.count AS place FROM @slice s
        WHERE s.shard_key = $1 AND s.message_group = g.message_group AND s.message_group <> ''
        AND s.processed_at IS NULL AND s.place >= coalesce(l.place, 0)
        ORDER BY s.place DESC LIMIT 1
    ) AS x ON true
"""
# The key of a low place grows, so the last one is found before the dead ones.
_RAISE_LOW = """
    WITH gone AS (
        DELETE FROM @group_low l USING (
            SELECT $1::bigint AS shard_key, u.* FROM unnest($2::bytea[], $4::bigint[]) AS u (message_group, place)
            OFFSET 0
        ) AS a
        WHERE l.shard_key = a.shard_key AND l.message_group = a.message_group AND l.place = a.place
    )
    INSERT INTO @group_low (shard_key, message_group, place)
    SELECT $1, u.message_group, u.place FROM unnest($2::bytea[], $3::bigint[]) AS u (message_group, place)
    ON CONFLICT DO NOTHING
"""
_ARM = f"""
    UPDATE @slice s SET due = s.due - {BEHIND}, turn = $4
    FROM unnest($2::bytea[], $3::bigint[]) AS g (message_group, place) CROSS JOIN LATERAL (
        SELECT s.shard_key, s.bundle_id, s.first FROM @slice s
        WHERE s.shard_key = $1 AND s.message_group = g.message_group AND s.message_group <> ''
        AND s.processed_at IS NULL AND s.place >= g.place
        ORDER BY s.place LIMIT 1
    ) AS a
    WHERE {CHOSEN} AND s.due >= {BEHIND}
"""
_HOLDERS = f"""
    {named("$2::uuid[]", "token")} JOIN @slice s ON s.shard_key = a.shard_key AND s.token = a.token
    JOIN unnest($3::bytea[], $4::bigint[]) AS g (message_group, place) ON s.message_group = g.message_group
    WHERE s.place > g.place AND s.processed_at IS NULL
"""
# The claim that holds what was named holds the front part, so the rest of that is found by its token.
_HELD_BEHIND = f"""
    SELECT {PIECE} FROM {_HOLDERS}
    ORDER BY s.message_group, s.place
"""
_STRIP = Change(f"due = $4 + {BEHIND}, token = NULL, unstarted = false")
_PUT_BACK = Change(f"""
    due = CASE WHEN {UNDELIVERED} THEN least(s.sent_due, $4) ELSE $4 END + {BEHIND}, token = NULL,
    deliveries = s.deliveries - 1 + s.unstarted::int, unstarted = false
""")

_HEADS = f"""
    SELECT x.priority, x.due, x.bundle_id, x.first, x.message_group, x.turn
    FROM @shard h {WATERMARKS.format("h")}
    CROSS JOIN generate_series(0, 9) AS p (priority) CROSS JOIN LATERAL (
        SELECT s.priority, s.due, s.bundle_id, s.first, s.message_group, {TURN} AS turn FROM @slice s
        WHERE s.shard_key = $1 AND s.priority = p.priority AND {HAS_ITS_TURN.format("m", "$2")}
        AND s.message_group <> ALL ($3::bytea[])
        ORDER BY {TURN}, s.bundle_id, s.first LIMIT $4
    ) AS x WHERE h.shard_key = $1 LIMIT $4
"""
# Heads whose groups are locked by now, if they are still due.
_FIRST = f"""
    SELECT s.priority, s.due, {PIECE} FROM {PIECES} JOIN @slice s ON {CHOSEN}
    WHERE s.due <= $4 AND s.processed_at IS NULL
"""
_FOLLOWING = f"""
    SELECT x.* FROM unnest($2::bytea[], $3::bigint[]) AS g (message_group, place) CROSS JOIN LATERAL (
        SELECT s.due - {BEHIND}, {PIECE} FROM @slice s
        WHERE s.shard_key = $1 AND s.message_group = g.message_group AND s.message_group <> ''
        AND s.processed_at IS NULL AND s.place > g.place
        ORDER BY s.place LIMIT $4
    ) AS x
"""
_HELD_BY = f"SELECT {PIECE} FROM {_HOLDERS}"
_TAKE = f"""
    UPDATE @slice s SET
        due = $4 + {STILL_BEHIND}, token = $5, deliveries = s.deliveries + CASE WHEN $6 THEN 1 ELSE 0 END,
        unstarted = NOT $6
    FROM {PIECES} WHERE {CHOSEN}
    RETURNING s.place, s.priority, s.sent_due, s.first, s.count, s.deliveries + s.unstarted::int, {BUNDLE}
"""


class Heads(msgspec.Struct, frozen=True):
    """First slices of groups that a claim has locked, in the order of delivery."""

    pieces: list[Piece]
    contended: bool  # others were in the way of more
    is_read: bool = True
    begin: Row | None = None  # priority and turn of the first that was due, whoever has it


def of_bundles(sql: Sql, shard_key: int, ids: Iterable[bytes]) -> list[bytes]:
    """Return the groups of bundles that are stored."""
    asked = [Id(each) for each in sorted(set(ids))]
    return [group for (group,) in sql.all(_GROUPS, shard_key, asked)] if asked else []


def places_at_end(sql: Sql, shard_key: int, bundles: Sequence[Bundle]) -> tuple[list[int], dict[bytes, int]]:
    """Return the places of bundles that come at the ends of their groups, in their order; and where new groups begin.

    A new group begins at the present, behind the dead entries of what was in it before.
    """
    of_all = [bundle.group.encode() for bundle in bundles]
    rows, now = sql.all(_ENDS, shard_key, sorted(set(of_all))), sql.now()
    begins = {group: max(now, (low or 0) + 1) for group, low, end in rows if end is None}
    if begins and random.randrange(SELDOM) == 0:
        former = [low or -1 for _, low, end in rows if end is None]
        sql.run(_RAISE_LOW, shard_key, list(begins), list(begins.values()), former)
    ends = begins | {group: end for group, _, end in rows if end is not None}
    places: list[int] = []
    for group, bundle in zip(of_all, bundles, strict=True):
        places.append(ends[group])
        ends[group] += bundle.count
    return places, begins


def arm(sql: Sql, shard_key: int, places: Mapping[bytes, int]) -> None:
    """Let the first slice of each group be delivered when it is due. Nothing of the groups is before these places."""
    if places:
        sql.run(_ARM, shard_key, list(places), list(places.values()), sql.now() - LATE)


def vacated(pieces: Iterable[Piece]) -> dict[bytes, int]:
    """Return the places of those of the slices that are the first of their groups."""
    return {piece.group: piece.place for piece in pieces if piece.is_first and piece.group}


def first_places(pieces: Iterable[Piece]) -> dict[bytes, int]:
    """Return the place of the first of these slices in each group."""
    places: dict[bytes, int] = {}
    for piece in pieces:
        places[piece.group] = min(piece.place, places.get(piece.group, piece.place))
    return places


def put_back(sql: Sql, shard_key: int, released: Sequence[Piece], now: int) -> None:
    """Release, without counting the delivery, messages held behind slices that are released."""
    keys = {(piece.bundle_id, piece.first) for piece in released}
    held = _held_behind(sql, shard_key, released)
    _PUT_BACK.run(sql, shard_key, [each for each in held if (each.bundle_id, each.first) not in keys], now)


def leave_alone(sql: Sql, shard_key: int, kept: Sequence[Piece], now: int) -> None:
    """Release, without counting the delivery, messages held behind slices that stay held."""
    keys = {(piece.bundle_id, piece.first) for piece in kept}
    of_groups: dict[bytes, list[Piece]] = {}
    for each in _held_behind(sql, shard_key, kept):
        of_groups.setdefault(each.group, []).append(each)
    behind: list[Piece] = []
    for held in of_groups.values():
        behind += dropwhile(lambda each: (each.bundle_id, each.first) in keys, held)
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


def take(sql: Sql, shard_key: int, request: Claim, now: int) -> tuple[list[Row], Heads]:
    """Take up to the limit of messages: the first slices of groups, and what follows each as far as it is due.

    Returns their rows in the order of delivery, and what was found.
    """
    found = _heads(sql, shard_key, request.limit, now)
    if not found.pieces:
        return [], found
    row_keys = RowKeys(shard_key, 0)
    taken, lost = _chosen(sql, shard_key, found.pieces, request.limit, now)
    left = sum(piece.count for piece in taken) - request.limit
    if left > 0:
        last = taken[-1]
        border = last.end - left
        taken[-1], rest = cut(sql, row_keys, [(last, [(last.first, border), (border, last.end)])])
        lost.append(rest)
    strip(sql, shard_key, [piece for piece in lost if piece.token is not None], now)
    ids, firsts = [Id(piece.bundle_id) for piece in taken], [piece.first for piece in taken]
    token, until = Id(request.token), now + request.lease
    rows = {
        (row[6], row[3]): row for row in sql.all(_TAKE, shard_key, ids, firsts, until, token, request.started)
    }
    return [rows[piece.bundle_id, piece.first] for piece in taken], found


def _heads(sql: Sql, shard_key: int, limit: int, now: int) -> Heads:
    """Return first slices of groups that are due, as many as hold the limit of messages, with their groups locked."""
    is_alone = limit > FEW and try_lock_shard(sql, shard_key, alone=True)
    if not is_alone and not try_lock_shard(sql, shard_key, alone=False):
        return Heads([], contended=True, is_read=False)
    found: list[tuple[int, int, Piece]] = []
    seen: list[bytes] = []
    most = max(HEADS, min(limit, MANY_HEADS)) if is_alone else HEADS
    contended, begin = False, None
    while (room := limit - sum(piece.count for _, _, piece in found)) > 0:
        page = sql.all(_HEADS, shard_key, now, seen, most)
        if page and begin is None:
            begin = (page[0][0], page[0][5])
        page.sort(key=lambda row: row[:4])
        asked = page if is_alone else page[: min(room, FEW - len(seen))]
        if not asked:
            break
        groups = [row[4] for row in asked]
        free = set(groups if is_alone else try_lock(sql, shard_key, groups))
        free_rows = [row for row in asked if row[4] in free]
        ids, firsts = [Id(row[2]) for row in free_rows], [row[3] for row in free_rows]
        still = sql.all(_FIRST, shard_key, ids, firsts, now) if free_rows else []
        contended = contended or len(still) < len(asked)
        seen += groups
        found += [(row[0], row[1], Piece(*row[2:])) for row in still]
        if len(page) < most and len(asked) == len(page):
            break
    found.sort(key=lambda each: (each[0], each[1], each[2].bundle_id, each[2].first))
    return Heads(_until([piece for _, _, piece in found], limit), contended, begin=begin)


def _until(pieces: list[Piece], limit: int) -> list[Piece]:
    """Return as many of the slices as hold the limit of messages."""
    taken: list[Piece] = []
    for piece in pieces:
        if limit <= 0:
            break
        taken.append(piece)
        limit -= piece.count
    return taken


def _chosen(
    sql: Sql, shard_key: int, heads: list[Piece], limit: int, now: int
) -> tuple[list[Piece], list[Piece]]:
    """Return what is taken, in order, and which slices others lose.

    While there is room, what follows the first slices is taken too, as far as it is due. Where a lease has run out, the
    rest that was held under it goes with it, even if that was extended.
    """
    wanted = limit - sum(piece.count for piece in heads)
    taken = list(heads)
    following: dict[bytes, list[tuple[int, Piece]]] = {}
    if wanted > 0:
        names, places = [piece.group for piece in heads], [piece.place for piece in heads]
        for due, *columns in sql.all(_FOLLOWING, shard_key, names, places, wanted):
            piece = Piece(*columns)
            following.setdefault(piece.group, []).append((due, piece))
    keys = {(piece.bundle_id, piece.first) for piece in heads}
    for head in heads:
        for due, piece in following.get(head.group, ()):
            if wanted <= 0 or not (piece.token is not None or due <= now):
                break
            taken.append(piece)
            keys.add((piece.bundle_id, piece.first))
            wanted -= piece.count
    lapsed = [piece for piece in heads if piece.token is not None]
    if not lapsed:
        return taken, []
    rows = sql.all(
        _HELD_BY,
        shard_key,
        [Id(token) for token in sorted({piece.token or b"" for piece in lapsed})],
        [piece.group for piece in lapsed],
        [piece.place for piece in lapsed],
    )
    held = [Piece(*row) for row in rows]
    return taken, [piece for piece in held if (piece.bundle_id, piece.first) not in keys]
