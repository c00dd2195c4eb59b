"""What the holder of a claim does with its entries: finish, extend, release, forward.

What was moved elsewhere is remembered for a quarter of an hour, so that it is lost to its holder, not gone.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from shardq.sharding.shard import Shard
from shardq.storage import slicing
from shardq.storage.requests import Acknowledge, Extend, Fenced, Forward, Release, Span
from shardq.storage.sqlite import bundles, directory, queues
from shardq.storage.sqlite.slicing import cut

__all__ = ["MOVES_KNOWN", "REMEMBER", "acknowledge", "extend", "forward", "prune_moves", "release", "tell"]

MOVES_KNOWN = 15 * 60 * 1_000_000
"""For how long a move is known, in microseconds."""

REMEMBER = """
    INSERT INTO moved (moved_at, incarnation, bundle_id, first, count)
    SELECT ?, ?, bundle_id, first, count FROM entry
"""
"""Remembers entries: the moment and the queue's incarnation come before the values that find them."""

_MOVED = """
    SELECT first, first + count FROM moved WHERE bundle_id = ? AND incarnation = ? AND moved_at > ?
"""
_PRUNE = """
    DELETE FROM moved WHERE moved_at <= ?1
    AND moved_key IN (SELECT moved_key FROM moved ORDER BY moved_key LIMIT ?2)
"""


class _Step(msgspec.Struct, frozen=True):
    """A statement on an entry that equals a span, and the same one on an entry with a known key."""

    exact: str
    by_key: str


def _step(statement: str) -> _Step:
    return _Step(statement + _EXACT, statement + _BY_KEY)


# Steps with the parameters that they have in front of those that find the entry.
_Steps: TypeAlias = Sequence[tuple[_Step, tuple[int | None, ...]]]

_EXACT = " WHERE bundle_id = ? AND first = ? AND count = ? AND token = ? AND shard_key = ?"
_BY_KEY = " WHERE entry_key = ?"
_KEEP = _step(
    "INSERT INTO history (shard_key, processed_at, bundle_key, first, count, deliveries)"
    " SELECT shard_key, ?, bundle_key, first, count, deliveries + unstarted FROM entry"
)
_DELETE = _step("DELETE FROM entry")
_MOVE = _step(REMEMBER)
_HIDE = _step("UPDATE entry SET due = ?")
_HIDE_LONGER = _step("UPDATE entry SET due = max(due, ?)")
_START = _step("UPDATE entry SET deliveries = deliveries + unstarted, unstarted = 0")
_GIVE_BACK = _step(
    "UPDATE entry SET due = ?, token = NULL, deliveries = deliveries + unstarted, unstarted = 0"
)
_UNDO = "token = NULL, deliveries = deliveries - 1 + unstarted, unstarted = 0"
_GIVE_BACK_UNSTARTED = _step(f"UPDATE entry SET due = ?, {_UNDO}")
# What this delivery was the first of takes its place in the order again.
_PUT_BACK = _step(
    "UPDATE entry SET due = iif(deliveries + unstarted > 1, ?,"
    " (SELECT min(bundle.due, ?) FROM bundle WHERE bundle.bundle_key = entry.bundle_key)),"
    f" {_UNDO}"
)

_SAVE = "SAVEPOINT held"
_RESTORE = "ROLLBACK TO held"
_KEEP_CHANGES = "RELEASE held"


def acknowledge(sql: sqlite3.Connection, request: Acknowledge, now: int) -> Fenced:
    """Delete the entries, and the bundles that have none left; with ``keep`` note them in the history."""
    steps: list[tuple[_Step, tuple[int | None, ...]]] = [(_DELETE, ())]
    if request.keep:
        steps.insert(0, (_KEEP, (now,)))
    if request.moved:
        steps.insert(0, (_MOVE, (now, queues.incarnation(sql, request.shard.queue))))
        prune_moves(sql, now, 2 * len(request.spans))
    fenced = _apply(sql, request.shard, request.spans, steps, now)
    if not request.keep:
        bundles.finish(sql, request.shard.queue, dict.fromkeys(span.bundle_id for span in request.spans), now)
    return fenced


def extend(sql: sqlite3.Connection, request: Extend, now: int) -> Fenced:
    """Move the end of the entries' lease; with ``starts`` count what is not counted yet."""
    hide = _HIDE if request.shorten else _HIDE_LONGER
    steps: list[tuple[_Step, tuple[int, ...]]] = [(hide, (now + request.lease,))]
    if request.starts:
        steps.append((_START, ()))
    return _apply(sql, request.shard, request.spans, steps, now)


def release(sql: sqlite3.Connection, request: Release, now: int) -> Fenced:
    """Take the token off the entries; without ``started`` their last delivery is not counted."""
    fenced = _apply(sql, request.shard, request.spans, [_giving_back(request, now)], now)
    if directory.key_of(sql, request.shard) is not None:
        queues.announce(sql, request.shard.queue)
    return fenced


def _giving_back(request: Release, now: int) -> tuple[_Step, tuple[int, ...]]:
    if request.started:
        return _GIVE_BACK, (now + request.delay,)
    if request.delay:
        return _GIVE_BACK_UNSTARTED, (now + request.delay,)
    return _PUT_BACK, (now, now)


def forward(sql: sqlite3.Connection, request: Forward, now: int) -> Fenced:
    """Acknowledge and append, or neither when some message is lost or gone."""
    queues.require(sql, request.append.shard.queue)
    sql.execute(_SAVE)
    fenced = acknowledge(sql, replace(request.acknowledge, moved=True), now)
    if fenced.lost or fenced.gone:
        sql.execute(_RESTORE)
    else:
        bundles.append(sql, request.append, now)
    sql.execute(_KEEP_CHANGES)
    return fenced


def _apply(sql: sqlite3.Connection, shard: Shard, spans: Sequence[Span], steps: _Steps, now: int) -> Fenced:
    shard_key = directory.key_of(sql, shard)
    if _apply_exactly(sql, shard_key, spans, steps):
        return Fenced()
    pieces = cut(sql, shard_key, spans)
    for step, values in steps:
        sql.executemany(step.by_key, ((*values, key) for key in pieces.entry_keys))
    return tell(sql, shard.queue, pieces.fenced, now)


def _apply_exactly(
    sql: sqlite3.Connection, shard_key: int | None, spans: Sequence[Span], steps: _Steps
) -> bool:
    """Take the steps if every span is one whole entry; False, and nothing changed, if not."""
    places = [(span.bundle_id, span.first, span.count, span.token, shard_key) for span in spans]
    sql.execute(_SAVE)
    done = all(
        sql.executemany(step.exact, ((*values, *place) for place in places)).rowcount == len(places)
        for step, values in steps
    )
    if not done:
        sql.execute(_RESTORE)
    sql.execute(_KEEP_CHANGES)
    return done


def tell(sql: sqlite3.Connection, queue: str, fenced: Fenced, now: int) -> Fenced:
    """Return the answer with those of the gone messages among the lost that were moved elsewhere."""
    if not fenced.gone:
        return fenced
    incarnation = queues.incarnation(sql, queue)
    told = slicing.fenced(fenced.gone, lambda span: _ranges(sql, span, incarnation, now))
    return Fenced((*fenced.lost, *told.lost), told.gone)


def _ranges(
    sql: sqlite3.Connection, span: Span, incarnation: int | None, now: int
) -> Iterable[tuple[int, int]]:
    return sql.execute(_MOVED, (span.bundle_id, incarnation, now - MOVES_KNOWN)).fetchall()


def prune_moves(sql: sqlite3.Connection, now: int, limit: int) -> int:
    """Forget up to ``limit`` moves that were remembered for long enough; returns how many."""
    return sql.execute(_PRUNE, (now - MOVES_KNOWN, limit)).rowcount
