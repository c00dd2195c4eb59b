"""What was acked and is kept."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from shardq.storage.sqlite import bundles

__all__ = ["expire", "remove_processed"]

_COVERING = """
    SELECT history_key, first, count FROM history
    WHERE bundle_key = (SELECT bundle_key FROM bundle WHERE bundle_id = ?1 AND shard_key = ?2)
    AND first <= ?3 ORDER BY first DESC LIMIT 1
"""
_TAIL = """
    INSERT INTO history (shard_key, processed_at, bundle_key, first, count, deliveries)
    SELECT shard_key, processed_at, bundle_key, ?2, first + count - ?2, deliveries
    FROM history WHERE history_key = ?1
"""
_HEAD = "UPDATE history SET count = ?2 WHERE history_key = ?1"
_DELETE = "DELETE FROM history WHERE history_key = ?"
_OLD = """
    SELECT history_key, bundle_id FROM shard JOIN history USING (shard_key) JOIN bundle USING (bundle_key)
    WHERE queue = ? AND processed_at < ? LIMIT ?
"""


def remove_processed(sql: sqlite3.Connection, shard_key: int, bundle_id: bytes, position: int) -> bool:
    """Take one message out of the history; False when it is not in it."""
    row = sql.execute(_COVERING, (bundle_id, shard_key, position)).fetchone()
    if row is None or row[1] + row[2] <= position:
        return False
    key, first, count = row
    if position + 1 < first + count:
        sql.execute(_TAIL, (key, position + 1))
    if first < position:
        sql.execute(_HEAD, (key, position - first))
    else:
        sql.execute(_DELETE, (key,))
    return True


def expire(sql: sqlite3.Connection, queue: str, before: int, limit: int, now: int) -> int:
    """Give up to ``limit`` slices up that were processed before a moment; returns how many."""
    old: Sequence[tuple[int, bytes]] = sql.execute(_OLD, (queue, before, limit)).fetchall()
    sql.executemany(_DELETE, ((key,) for key, _ in old))
    bundles.finish(sql, queue, dict.fromkeys(bundle_id for _, bundle_id in old), now)
    return len(old)
