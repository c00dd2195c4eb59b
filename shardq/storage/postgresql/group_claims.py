"""Claims of groups: what may go next of each, and what follows it.

A claim holds the locks of the groups that it takes from, or if it may take from many, the whole shard. It does not wait
for groups that others change just then, but takes from the rest.
"""

from __future__ import annotations

from shardq.storage.postgresql import groups
from shardq.storage.postgresql.connections import Id, Row, Sql
from shardq.storage.postgresql.directory import Home
from shardq.storage.postgresql.locks import FEW, try_lock, try_lock_shard
from shardq.storage.postgresql.rows import BEHIND, BUNDLE, CHOSEN, PIECE, PIECES, STILL_BEHIND, Piece
from shardq.storage.postgresql.slicing import cut
from shardq.storage.requests import Claim

__all__ = ["take"]

_PAGE = 64  # heads that are read at a time

_HEADS = """
    SELECT x.priority, x.due, x.bundle_id, x.first, x.message_group
    FROM generate_series(0, 9) AS p (priority) CROSS JOIN LATERAL (
        SELECT s.priority, s.due, s.bundle_id, s.first, s.message_group FROM @slice s
        WHERE s.shard_key = $1 AND s.priority = p.priority AND s.due <= $2 AND s.processed_at IS NULL
        AND s.message_group <> ALL ($4::bytea[])
        ORDER BY s.due, s.bundle_id, s.first LIMIT $3
    ) AS x LIMIT $3
"""
# The first slices of groups that are locked by now, if they are still due.
_FIRST = f"""
    SELECT s.priority, s.due, {PIECE} FROM unnest($3::bytea[]) AS g (message_group) CROSS JOIN LATERAL (
        SELECT * FROM @slice e
        WHERE e.shard_key = $1 AND e.message_group = g.message_group AND e.message_group <> ''
        AND e.processed_at IS NULL AND e.due < {BEHIND} LIMIT 1
    ) AS s WHERE s.due <= $2
"""
_FOLLOWING = f"""
    SELECT x.* FROM unnest($2::bytea[], $3::bigint[]) AS g (message_group, place) CROSS JOIN LATERAL (
        SELECT s.due - {BEHIND}, {PIECE} FROM @slice s
        WHERE s.shard_key = $1 AND s.message_group = g.message_group AND s.message_group <> ''
        AND s.processed_at IS NULL AND s.place > g.place
        ORDER BY s.place LIMIT $4
    ) AS x
"""
_HELD_BY = f"""
    SELECT {PIECE} FROM @slice s
    JOIN unnest($3::bytea[], $4::bigint[]) AS g (message_group, place) ON s.message_group = g.message_group
    WHERE s.token = ANY ($2::uuid[]) AND s.shard_key = $1 AND s.place > g.place AND s.processed_at IS NULL
"""
_TAKE = f"""
    UPDATE @slice s SET
        due = $4 + {STILL_BEHIND}, token = $5, deliveries = s.deliveries + CASE WHEN $6 THEN 1 ELSE 0 END,
        unstarted = NOT $6
    FROM {PIECES} WHERE {CHOSEN}
    RETURNING s.place, s.priority, s.sent_due, s.first, s.count, s.deliveries + s.unstarted::int, {BUNDLE}
"""


def take(sql: Sql, shard_key: int, request: Claim, now: int) -> tuple[list[Row], bool]:
    """Take up to the limit of messages: the first slices of groups, and what follows each as far as it is due.

    Returns their rows in the order of delivery, and whether others were in the way of more.
    """
    heads, contended = _heads(sql, shard_key, request.limit, now)
    if not heads:
        return [], contended
    home = Home(shard_key, 0)
    taken, lost = _chosen(sql, shard_key, heads, request.limit, now)
    left = sum(piece.count for piece in taken) - request.limit
    if left > 0:
        last = taken[-1]
        border = last.end - left
        taken[-1], rest = cut(sql, home, [(last, [(last.first, border), (border, last.end)])])
        lost.append(rest)
    groups.strip(sql, shard_key, [piece for piece in lost if piece.token is not None], now)
    ids, firsts = [Id(piece.bundle_id) for piece in taken], [piece.first for piece in taken]
    token, until = Id(request.token), now + request.lease
    rows = {
        (row[6], row[3]): row for row in sql.all(_TAKE, shard_key, ids, firsts, until, token, request.started)
    }
    return [rows[piece.bundle_id, piece.first] for piece in taken], contended


def _heads(sql: Sql, shard_key: int, limit: int, now: int) -> tuple[list[Piece], bool]:
    """Return first slices of groups that are due, as many as hold the limit of messages, with their groups locked."""
    is_alone = limit > FEW and try_lock_shard(sql, shard_key, alone=True)
    if not is_alone and not try_lock_shard(sql, shard_key, alone=False):
        return [], True
    found: list[tuple[int, int, Piece]] = []
    seen: list[bytes] = []
    contended, most = False, min(limit, _PAGE if is_alone else FEW)
    while sum(piece.count for _, _, piece in found) < limit:
        room = most if is_alone else min(most, FEW - len(seen))
        page = sql.all(_HEADS, shard_key, now, room, seen) if room > 0 else []
        asked = [row[4] for row in page]
        free = asked if is_alone or not asked else try_lock(sql, shard_key, asked)
        contended = contended or len(free) < len(asked)
        seen += asked
        if free:
            found += [(row[0], row[1], Piece(*row[2:])) for row in sql.all(_FIRST, shard_key, now, free)]
        if len(page) < room or room <= 0:
            break
    found.sort(key=lambda each: (each[0], each[1], each[2].bundle_id, each[2].first))
    return _until([piece for _, _, piece in found], limit), contended


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
    named = {(piece.bundle_id, piece.first) for piece in heads}
    for head in heads:
        for due, piece in following.get(head.group, ()):
            if wanted <= 0 or not (piece.token is not None or due <= now):
                break
            taken.append(piece)
            named.add((piece.bundle_id, piece.first))
            wanted -= piece.count
    lapsed = [piece for piece in heads if piece.token is not None]
    if not lapsed:
        return taken, []
    rows = sql.all(
        _HELD_BY,
        shard_key,
        [Id(piece.token or b"") for piece in lapsed],
        [piece.group for piece in lapsed],
        [piece.place for piece in lapsed],
    )
    held = [Piece(*row) for row in rows]
    return taken, [piece for piece in held if (piece.bundle_id, piece.first) not in named]
