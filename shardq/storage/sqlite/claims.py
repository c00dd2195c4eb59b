"""Taking entries under a claim's token."""

from __future__ import annotations

import sqlite3
from typing import TypeAlias

from shardq.storage.requests import Bundle, Claim, Claimed, ClaimedSlice
from shardq.storage.sqlite import directory
from shardq.storage.sqlite.slicing import split

__all__ = ["Taken", "read", "take"]

# A bundle's key and the slice's first message, in the order of delivery.
Taken: TypeAlias = tuple[tuple[int, int], ...]

_HELD = """
    SELECT entry_key, entry.bundle_key, first
    FROM entry INDEXED BY entry_by_token JOIN bundle USING (bundle_key)
    WHERE token = ? AND entry.shard_key = ? ORDER BY entry.priority, bundle.due, entry.bundle_id, first
"""
_PROLONG = "UPDATE entry SET due = ? WHERE entry_key = ?"
_DELIVERABLE = """
    SELECT entry_key, bundle_key, first, count FROM entry INDEXED BY entry_by_due
    WHERE shard_key = ? AND priority IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9) AND due <= ?
    ORDER BY priority, due, bundle_id, first
"""
_TAKE = """
    UPDATE entry SET due = ?1, token = ?2, deliveries = deliveries + 1 - ?3, unstarted = ?3 WHERE entry_key = ?4
"""
_READ = """
    SELECT bundle_key, first, entry.count, deliveries + unstarted,
        bundle.bundle_id, bundle.priority, bundle.due, bundle.enqueued_at, bundle.count, data
    FROM entry INDEXED BY entry_by_token JOIN bundle USING (bundle_key) WHERE token = ?
"""


def take(sql: sqlite3.Connection, request: Claim, now: int) -> tuple[Taken, int]:
    """Hide up to the limit of deliverable messages, or again what the token holds; return them and the time."""
    shard_key = directory.key_of(sql, request.shard)
    if shard_key is None:
        return (), now
    held = sql.execute(_HELD, (request.token, shard_key)).fetchall()
    if held:
        sql.executemany(_PROLONG, ((now + request.lease, key) for key, *_ in held))
        return tuple((bundle_key, first) for _, bundle_key, first in held), now
    rows = _deliverable(sql, shard_key, now, request.limit)
    until, unstarted = now + request.lease, int(not request.started)
    sql.executemany(_TAKE, ((until, request.token, unstarted, key) for key, *_ in rows))
    return tuple((bundle_key, first) for _, bundle_key, first, _ in rows), now


def _deliverable(
    sql: sqlite3.Connection, shard_key: int, now: int, limit: int
) -> list[tuple[int, int, int, int]]:
    rows = []
    wanted = limit
    cursor = sql.execute(_DELIVERABLE, (shard_key, now))
    for row in cursor:
        rows.append(row)
        wanted -= row[3]
        if wanted <= 0:
            break
    cursor.close()
    if wanted < 0:
        key, _, _, count = rows[-1]
        split(sql, key, count + wanted)
    return rows


def read(sql: sqlite3.Connection, token: bytes, taken: Taken, lease_until: int) -> Claimed:
    """Return the slices with their bundles; those that were purged since are left out."""
    order = {place: index for index, place in enumerate(taken)}
    slices = [(order[row[:2]], _slice(row)) for row in sql.execute(_READ, (token,)) if row[:2] in order]
    slices.sort(key=lambda item: item[0])
    return Claimed(tuple(taken_slice for _, taken_slice in slices), lease_until)


def _slice(row: tuple[object, ...]) -> ClaimedSlice:
    _, first, count, deliveries, *bundle = row
    return ClaimedSlice(Bundle(*bundle), first, count, deliveries)  # type: ignore[arg-type]
