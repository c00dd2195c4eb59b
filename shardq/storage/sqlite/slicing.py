"""Cutting slices so that some messages of a bundle have slices of their own.

A request names spans of messages; the slices that hold them may be longer, shorter or another holder's by then.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence

import msgspec

from shardq.base.shard import Shard
from shardq.storage.requests import Fenced, Span
from shardq.storage.slicing import covered, fenced, uncovered
from shardq.storage.sqlite import directory, queues
from shardq.storage.sqlite.bundles import BEHIND, HOLDER

__all__ = ["FEW", "MOVES_KNOWN", "Cut", "as_stored", "cut", "cut_out", "skip", "split", "split_off"]

# Slices that begin within a span, and the last that begins before it, which may end before it too.
SQL_COVERING = f"""
    SELECT slice_key, first, count, {HOLDER}, processed_at FROM [slice]
    WHERE bundle_id = ?1 AND first < ?3 AND shard_key = ?4
    AND first >= coalesce((SELECT max(first) FROM [slice] WHERE bundle_id = ?1 AND first <= ?2), 0)
    ORDER BY first
"""
# Of a group, the tail is behind the front part.
_TAIL = f"""
    INSERT INTO [slice] (
        shard_key, bundle_id, first, count, priority, due, deliveries, unstarted, token, processed_at,
        sent_due, enqueued_at, sent_count, data_key, data, expires_at, message_group, place
    )
    SELECT
        shard_key, bundle_id, first + ?2, count - ?2, priority,
        due + iif(message_group = '' OR due >= {BEHIND}, 0, {BEHIND}), deliveries, unstarted, token, processed_at,
        sent_due, enqueued_at, sent_count, data_key, data, expires_at,
        message_group, place + iif(message_group = '', 0, ?2)
    FROM [slice] WHERE slice_key = ?1
"""
_HEAD = "UPDATE [slice] SET count = ?2 WHERE slice_key = ?1"
_SKIP = """
    UPDATE [slice] SET first = first + ?2, count = count - ?2, place = place + iif(message_group = '', 0, ?2)
    WHERE slice_key = ?1
"""
# A limit keeps what a claim holds from being read whole for some of it.
SQL_HELD = f"""
    SELECT bundle_id, first, count, {HOLDER}, slice_key FROM [slice] INDEXED BY [slice_by_token]
    WHERE shard_key = ? AND token = ? LIMIT ?
"""
_MOVED = """
    SELECT first, first + count FROM [moved] WHERE bundle_id = ? AND incarnation = ? AND moved_at > ?
"""
_TOKEN = f"""
    SELECT token, due % {BEHIND} FROM [slice] WHERE bundle_id = ?1 AND first <= ?2 AND processed_at IS NULL
    ORDER BY first DESC LIMIT 1
"""
MOVES_KNOWN = 15 * 60 * 1_000_000
"""For how long a move is known, in microseconds."""

FEW = 4
"""Fewer spans than these are looked for one by one; more as all that their claims hold."""


class Cut(msgspec.Struct, frozen=True):
    """The slices that hold exactly what is still held of the spans, and what is not."""

    shard_key: int | None  # None: nothing was ever stored in the shard
    slice_keys: tuple[int, ...]
    fenced: Fenced


class _Slice(msgspec.Struct, frozen=True):
    key: int
    first: int
    count: int
    token: bytes | None
    processed_at: int | None

    @property
    def end(self) -> int:
        return self.first + self.count


def cut(sql: sqlite3.Connection, shard: Shard, spans: Sequence[Span], now: int) -> Cut:
    """Cut the slices at the borders of what each span still holds under its token.

    Apart from the cuts nothing changes: every piece keeps its due time, token and deliveries. Of what is not stored any
    more, what was moved elsewhere is lost.
    """
    shard_key = directory.key_of(sql, shard)
    if len(spans) >= FEW and (whole := _whole(sql, shard_key, spans)):
        return Cut(shard_key, whole, Fenced())
    keys: dict[int, None] = {}
    lost, gone = list[Span](), list[Span]()
    for span in spans:
        end = span.first + span.count
        covering = sql.execute(SQL_COVERING, (span.bundle_id, span.first, end, shard_key)).fetchall()
        if len(covering) == 1 and covering[0][1:] == (span.first, span.count, span.token, None):
            keys[covering[0][0]] = None
            continue
        stored = [each for row in covering if row[4] is None and (each := _Slice(*row)).end > span.first]
        held = [each for each in stored if each.token == span.token]
        keys.update((_isolate(sql, each, span.first, end), None) for each in held)
        lost += covered(span, [(each.first, each.end) for each in stored if each.token != span.token])
        gone += uncovered(span, [(each.first, each.end) for each in stored])
    if gone:
        seen = (queues.incarnation(sql, shard.queue), now - MOVES_KNOWN)
        answer = fenced(gone, lambda span: sql.execute(_MOVED, (span.bundle_id, *seen)).fetchall())
        return Cut(shard_key, tuple(keys), Fenced((*lost, *answer.lost), answer.gone))
    return Cut(shard_key, tuple(keys), Fenced(tuple(lost)))


def as_stored(sql: sqlite3.Connection, span: Span, now: int) -> Span:
    """Return a span under `PENDING` with the token that its message has, if nobody holds that now: one that lapsed.

    A message that was released, or never held, has None.
    """
    row = sql.execute(_TOKEN, (span.bundle_id, span.first)).fetchone()
    token, due = row or (None, 0)
    return span if token is not None and due > now else msgspec.structs.replace(span, token=token)


def _whole(sql: sqlite3.Connection, shard_key: int | None, spans: Sequence[Span]) -> tuple[int, ...]:
    """Return the slices if every span is one of them, whole, and they are a good part of their claims; none if not."""
    named = Counter([span.token for span in spans])
    if len(spans) < FEW * len(named):
        return ()
    held = {
        row[:4]: row[4]
        for token, number in named.items()
        for row in sql.execute(SQL_HELD, (shard_key, token, 2 * number))
    }
    try:
        return tuple([held[span.bundle_id, span.first, span.count, span.token] for span in spans])
    except KeyError:
        return ()


def cut_out(sql: sqlite3.Connection, shard_key: int, bundle_id: bytes, position: int) -> int | None:
    """Return the key of a slice made to hold this message alone, whatever its state; None without one."""
    covering = sql.execute(SQL_COVERING, (bundle_id, position, position + 1, shard_key)).fetchall()
    for row in covering:
        if (each := _Slice(*row)).end > position:
            return _isolate(sql, each, position, position + 1)
    return None


def split(sql: sqlite3.Connection, slice_key: int, count: int) -> int:
    """Leave the first ``count`` messages to the slice; returns the key of a new one that holds the rest."""
    tail = split_off(sql, slice_key, count)
    sql.execute(_HEAD, (slice_key, count))
    return tail


def split_off(sql: sqlite3.Connection, slice_key: int, count: int) -> int:
    """Return the key of a new slice for what follows the first ``count`` messages; the caller shortens the old one."""
    tail = sql.execute(_TAIL, (slice_key, count)).lastrowid
    assert tail is not None
    return tail


def skip(sql: sqlite3.Connection, slice_key: int, count: int) -> None:
    """Take the first ``count`` messages out of the slice, for good; it has more."""
    sql.execute(_SKIP, (slice_key, count))


def _isolate(sql: sqlite3.Connection, found: _Slice, first: int, end: int) -> int:
    key = found.key
    start = max(found.first, first)
    if start > found.first:
        key = split(sql, key, start - found.first)
    if end < found.end:
        split(sql, key, end - start)
    return key
