"""The operations of the holder of a claim on its slices: finish, extend, release, forward.

Messages that were moved elsewhere are remembered for a quarter of an hour, so that they are lost to their holder, not
gone.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from shardq.storage.abilities import Settle
from shardq.storage.requests import Acknowledge, Append, Extend, Fenced, Forward, Release, Span
from shardq.storage.slicing import pending_in, renamed
from shardq.storage.sqlite import bundles, groups, queues
from shardq.storage.sqlite.bundles import STILL_BEHIND, Change
from shardq.storage.sqlite.slicing import FEW, MOVES_KNOWN, as_stored, cut

__all__ = ["acknowledge", "extend", "forward", "is_durable", "is_news", "prune_moves", "release", "settle"]

_REMEMBER = Change("""
    INSERT INTO [moved] (moved_at, incarnation, bundle_id, first, count)
    SELECT ?2, ?3, bundle_id, first, count FROM [slice] WHERE {0}
""")
_PRUNE = """
    DELETE FROM [moved] WHERE moved_at <= ?1
    AND moved_key IN (SELECT moved_key FROM [moved] ORDER BY moved_key LIMIT ?2)
"""
_KEEP = Change("""
    UPDATE [slice] SET processed_at = ?2, token = NULL, deliveries = deliveries + unstarted, unstarted = 0 WHERE {0}
""")
_HIDE = Change(f"UPDATE [slice] SET due = ?2 + {STILL_BEHIND} WHERE {{0}}")
_HIDE_LONGER = Change(f"UPDATE [slice] SET due = max(due, ?2 + {STILL_BEHIND}) WHERE {{0}}")
_START = Change("UPDATE [slice] SET deliveries = deliveries + unstarted, unstarted = 0 WHERE {0}")
_RELEASE = Change(f"""
    UPDATE [slice] SET due = ?2 + {STILL_BEHIND}, token = NULL, deliveries = deliveries + unstarted, unstarted = 0
    WHERE {{0}}
""")
_UNDO = "token = NULL, deliveries = deliveries - 1 + unstarted, unstarted = 0"
_RELEASE_UNSTARTED = Change(f"UPDATE [slice] SET due = ?2 + {STILL_BEHIND}, {_UNDO} WHERE {{0}}")
# A slice whose first delivery this was takes its place in the order again.
_PUT_BACK = Change(f"""
    UPDATE [slice] SET due = iif(deliveries + unstarted > 1, ?2, min(sent_due, ?2)) + {STILL_BEHIND}, {_UNDO}
    WHERE {{0}}
""")

_SAVE = "SAVEPOINT held"
_RESTORE = "ROLLBACK TO held"
_KEEP_CHANGES = "RELEASE held"


def settle(sql: sqlite3.Connection, requests: Iterable[Settle], now: int) -> tuple[Fenced, ...]:
    """Carry out the requests, one after the other."""
    return tuple(_settle(sql, request, now) for request in requests)


def _settle(sql: sqlite3.Connection, request: Settle, now: int) -> Fenced:
    match request:
        case Acknowledge():
            return acknowledge(sql, request, now)
        case Extend():
            return extend(sql, request, now)
        case Release():
            return release(sql, request, now)
        case Forward():
            return forward(sql, request, now)


def is_news(request: Settle) -> bool:
    """Return whether it may make a message deliverable: one that it releases or sends, or the next of a group."""
    if isinstance(request, Acknowledge):
        return request.shard.is_grouped
    return isinstance(request, Forward | Release)


def is_durable(request: Settle) -> bool:
    """Return whether it has to be on the disk when it returns: what it takes back would be worked again."""
    return request.blocks if isinstance(request, Extend) else isinstance(request, Acknowledge | Forward)


def acknowledge(sql: sqlite3.Connection, request: Acknowledge, now: int) -> Fenced:
    """Delete the slices, and the bundles that have none left; with ``keep`` they are the history's."""
    spans: Sequence[Span] = request.spans
    is_grouped = request.shard.is_grouped
    if len(spans) < FEW and not (request.keep or request.moved or is_grouped):
        spans = bundles.delete_held(sql, request.shard, spans, now)
        if not spans:
            return Fenced()
    pieces = cut(sql, request.shard, spans, now)
    over = groups.groups_of(sql, pieces.slice_keys) if is_grouped else []
    _finish(sql, request, pieces.slice_keys, now)
    if over:
        groups.arm(sql, request.shard.queue, pieces.shard_key, over)
    return pieces.fenced


def _finish(sql: sqlite3.Connection, request: Acknowledge, slice_keys: Sequence[int], now: int) -> None:
    queue = request.shard.queue
    if request.moved:
        prune_moves(sql, now, 2 * len(request.spans))
        _REMEMBER.run(sql, slice_keys, now, queues.incarnation(sql, queue))
    if request.keep:
        _KEEP.run(sql, slice_keys, now)
    elif slice_keys:
        bundles.delete(sql, queue, slice_keys, now)


def extend(sql: sqlite3.Connection, request: Extend, now: int) -> Fenced:
    """Move the end of the slices' lease; with ``starts`` count deliveries that are not counted yet.

    With ``blocks`` there is none, and messages held behind them in their groups are released.
    """
    pieces = cut(sql, request.shard, request.spans, now)
    slices = pieces.slice_keys
    (_HIDE if request.shorten else _HIDE_LONGER).run(sql, slices, request.until(now))
    if request.starts:
        _START.run(sql, slices)
    if request.blocks and pieces.shard_key is not None:
        groups.leave_alone(sql, pieces.shard_key, slices, now)
    return pieces.fenced


def release(sql: sqlite3.Connection, request: Release, now: int) -> Fenced:
    """Take the token off the slices; without ``started`` their last delivery is not counted."""
    pieces = cut(sql, request.shard, request.spans, now)
    uncounted = _RELEASE_UNSTARTED if request.delay else _PUT_BACK
    (_RELEASE if request.started else uncounted).run(sql, pieces.slice_keys, now + request.delay)
    if pieces.shard_key is not None:
        if request.shard.is_grouped:
            groups.put_back(sql, pieces.shard_key, pieces.slice_keys, now)
        queues.announce(sql, request.shard.queue)
    return pieces.fenced


def forward(sql: sqlite3.Connection, request: Forward, now: int) -> Fenced:
    """Acknowledge and append, or neither when some message is lost or gone."""
    queues.require(sql, request.append.shard.queue)
    sql.execute(_SAVE)
    finished = replace(request.acknowledge, moved=True)
    if (pending := pending_in(finished)) is not None:
        finished = replace(finished, spans=(as_stored(sql, pending, now),))
    if request.in_place and finished.shard.is_grouped:
        fenced = _replace(sql, finished, request.append, now)
    else:
        fenced = acknowledge(sql, finished, now)
        if fenced == Fenced():
            bundles.append(sql, request.append, now)
    if fenced != Fenced():
        sql.execute(_RESTORE)
    sql.execute(_KEEP_CHANGES)
    return renamed(request.acknowledge, fenced)


def _replace(sql: sqlite3.Connection, request: Acknowledge, append: Append, now: int) -> Fenced:
    """Finish messages of groups, and let bundles take their places; messages held behind them are released."""
    pieces = cut(sql, request.shard, request.spans, now)
    shard_key = pieces.shard_key
    if shard_key is None or pieces.fenced != Fenced():
        return pieces.fenced
    over = groups.groups_of(sql, pieces.slice_keys)
    places = [groups.place_of(sql, shard_key, span.bundle_id, span.first) for span in request.spans]
    groups.put_back(sql, shard_key, pieces.slice_keys, now)
    _finish(sql, request, pieces.slice_keys, now)
    bundles.append(sql, append, now, places)
    groups.arm(sql, request.shard.queue, shard_key, over)
    return pieces.fenced


def prune_moves(sql: sqlite3.Connection, now: int, limit: int) -> int:
    """Forget up to ``limit`` moves that were remembered for long enough; returns how many."""
    return sql.execute(_PRUNE, (now - MOVES_KNOWN, limit)).rowcount
