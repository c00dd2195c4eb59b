"""Cutting entries so that some messages of a bundle have entries of their own.

A request names spans of messages; the entries that hold them may be longer, shorter or somebody else's by
then.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import msgspec

from shardq.storage.requests import Fenced, Span
from shardq.storage.slicing import covered, uncovered

__all__ = ["Cut", "cut", "cut_out", "split"]

_COVERING = """
    SELECT entry_key, first, count, token FROM entry
    WHERE bundle_id = ?1 AND first < ?3 AND shard_key = ?4
    AND first >= coalesce((SELECT max(first) FROM entry WHERE bundle_id = ?1 AND first <= ?2), 0)
    ORDER BY first
"""
_TAIL = """
    INSERT INTO entry
        (shard_key, priority, due, bundle_key, bundle_id, first, count, deliveries, enqueued_at, token,
        unstarted)
    SELECT
        shard_key, priority, due, bundle_key, bundle_id,
        first + ?2, count - ?2, deliveries, enqueued_at, token, unstarted
    FROM entry WHERE entry_key = ?1
"""
_HEAD = "UPDATE entry SET count = ?2 WHERE entry_key = ?1"


class Cut(msgspec.Struct, frozen=True):
    """The entries that hold exactly what is still held of the spans, and what is not."""

    entry_keys: tuple[int, ...]
    fenced: Fenced


class _Entry(msgspec.Struct, frozen=True):
    key: int
    first: int
    count: int
    token: bytes | None

    @property
    def end(self) -> int:
        return self.first + self.count


def cut(sql: sqlite3.Connection, shard_key: int | None, spans: Sequence[Span]) -> Cut:
    """Cut the entries at the borders of what each span still holds under its token.

    Apart from the cuts nothing changes: every piece keeps its due time, token and deliveries.
    """
    keys: dict[int, None] = {}
    lost: list[Span] = []
    gone: list[Span] = []
    for span in spans:
        end = span.first + span.count
        entries = _covering(sql, shard_key, span.bundle_id, span.first, end)
        held = [entry for entry in entries if entry.token == span.token]
        keys.update((_isolate(sql, entry, span.first, end), None) for entry in held)
        lost += covered(span, [(entry.first, entry.end) for entry in entries if entry.token != span.token])
        gone += uncovered(span, [(entry.first, entry.end) for entry in entries])
    return Cut(tuple(keys), Fenced(tuple(lost), tuple(gone)))


def cut_out(sql: sqlite3.Connection, shard_key: int, bundle_id: bytes, position: int) -> int | None:
    """Return the key of an entry made to hold this message alone, whoever held it; None without one."""
    for entry in _covering(sql, shard_key, bundle_id, position, position + 1):
        return _isolate(sql, entry, position, position + 1)
    return None


def split(sql: sqlite3.Connection, entry_key: int, count: int) -> int:
    """Leave the first ``count`` messages to the entry; returns the key of a new entry that holds the rest."""
    tail = sql.execute(_TAIL, (entry_key, count)).lastrowid
    assert tail is not None
    sql.execute(_HEAD, (entry_key, count))
    return tail


def _covering(
    sql: sqlite3.Connection, shard_key: int | None, bundle_id: bytes, first: int, end: int
) -> list[_Entry]:
    rows = sql.execute(_COVERING, (bundle_id, first, end, shard_key))
    return [entry for entry in (_Entry(*row) for row in rows) if entry.end > first]


def _isolate(sql: sqlite3.Connection, entry: _Entry, first: int, end: int) -> int:
    key = entry.key
    start = max(entry.first, first)
    if start > entry.first:
        key = split(sql, key, start - entry.first)
    if end < entry.end:
        split(sql, key, end - start)
    return key
