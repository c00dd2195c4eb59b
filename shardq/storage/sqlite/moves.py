"""Which slices were finished because they are stored elsewhere now."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from shardq.storage.ranges import covered, uncovered
from shardq.storage.requests import Fenced, Span
from shardq.storage.sqlite import queues

__all__ = ["MEMORY", "REMEMBER", "prune", "tell"]

MEMORY = 15 * 60 * 1_000_000
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


def tell(sql: sqlite3.Connection, queue: str, fenced: Fenced, now: int) -> Fenced:
    """Return the answer with those of the gone messages among the lost that were moved elsewhere."""
    if not fenced.gone:
        return fenced
    incarnation = queues.incarnation(sql, queue)
    ranges = [(span, _ranges(sql, span, incarnation, now)) for span in fenced.gone]
    lost = [part for span, moved in ranges for part in covered(span, moved)]
    gone = [part for span, moved in ranges for part in uncovered(span, moved)]
    return Fenced((*fenced.lost, *lost), tuple(gone))


def _ranges(
    sql: sqlite3.Connection, span: Span, incarnation: int | None, now: int
) -> Iterable[tuple[int, int]]:
    return sql.execute(_MOVED, (span.bundle_id, incarnation, now - MEMORY)).fetchall()


def prune(sql: sqlite3.Connection, now: int, limit: int) -> int:
    """Forget up to ``limit`` moves that were remembered for long enough; returns how many."""
    return sql.execute(_PRUNE, (now - MEMORY, limit)).rowcount
