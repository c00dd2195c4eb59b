"""What the holder of a claim does with its entries: finish, prolong, give back, forward."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from shardq.storage.requests import Acknowledge, Extend, Fenced, Forward, Release, Span
from shardq.storage.sqlite import bundles, directory, queues
from shardq.storage.sqlite.carving import carve

__all__ = ["acknowledge", "extend", "forward", "release"]


class _Step(msgspec.Struct, frozen=True):
    """A statement on an entry that equals a span, and the same one on an entry with a known key."""

    exact: str
    by_key: str


def _step(statement: str) -> _Step:
    return _Step(statement + _EXACT, statement + _BY_KEY)


# Steps with the parameters that they have in front of those that find the entry.
_Steps: TypeAlias = Sequence[tuple[_Step, tuple[int, ...]]]

_EXACT = " WHERE bundle_id = ? AND first = ? AND count = ? AND token = ? AND shard_key = ?"
_BY_KEY = " WHERE entry_key = ?"
_KEEP = _step(
    "INSERT INTO history (shard_key, processed_at, bundle_key, first, count, deliveries)"
    " SELECT shard_key, ?, bundle_key, first, count, deliveries FROM entry"
)
_DELETE = _step("DELETE FROM entry")
_HIDE = _step("UPDATE entry SET due = ?")
_HIDE_LONGER = _step("UPDATE entry SET due = max(due, ?)")
_GIVE_BACK = _step("UPDATE entry SET due = ?, token = NULL, deliveries = deliveries - ?")

_SAVE = "SAVEPOINT held"
_RESTORE = "ROLLBACK TO held"
_KEEP_CHANGES = "RELEASE held"


def acknowledge(sql: sqlite3.Connection, request: Acknowledge, now: int) -> Fenced:
    """Delete the entries, and the bundles that have none left; with ``keep`` note them in the history."""
    steps = [(_DELETE, ())] if not request.keep else [(_KEEP, (now,)), (_DELETE, ())]
    shard_key = directory.key_of(sql, request.shard)
    fenced = _apply(sql, shard_key, request.spans, steps)
    if not request.keep:
        bundles.finish(sql, dict.fromkeys(span.bundle_id for span in request.spans), now)
    return fenced


def extend(sql: sqlite3.Connection, request: Extend, now: int) -> Fenced:
    """Move the end of the entries' lease."""
    shard_key = directory.key_of(sql, request.shard)
    hide = _HIDE if request.shorten else _HIDE_LONGER
    return _apply(sql, shard_key, request.spans, [(hide, (now + request.lease,))])


def release(sql: sqlite3.Connection, request: Release, now: int) -> Fenced:
    """Take the token off the entries; without ``started`` their last delivery is not counted."""
    shard_key = directory.key_of(sql, request.shard)
    values = (now + request.delay, 0 if request.started else 1)
    fenced = _apply(sql, shard_key, request.spans, [(_GIVE_BACK, values)])
    if shard_key is not None:
        queues.announce(sql, request.shard.queue)
    return fenced


def forward(sql: sqlite3.Connection, request: Forward, now: int) -> Fenced:
    """Acknowledge and append, or neither when some message is lost or gone."""
    queues.require(sql, request.append.shard.queue)
    sql.execute(_SAVE)
    fenced = acknowledge(sql, request.acknowledge, now)
    if fenced.lost or fenced.gone:
        sql.execute(_RESTORE)
    else:
        bundles.append(sql, request.append, now)
    sql.execute(_KEEP_CHANGES)
    return fenced


def _apply(sql: sqlite3.Connection, shard_key: int | None, spans: Sequence[Span], steps: _Steps) -> Fenced:
    if _apply_exactly(sql, shard_key, spans, steps):
        return Fenced()
    carved = carve(sql, shard_key, spans)
    for step, values in steps:
        sql.executemany(step.by_key, ((*values, key) for key in carved.entry_keys))
    return carved.fenced


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
