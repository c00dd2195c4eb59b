"""Taking slices under a claim's token."""

from __future__ import annotations

import sqlite3
from typing import TypeAlias

import msgspec

from shardq.storage.requests import Bundle, Claim, Claimed, ClaimedSlice
from shardq.storage.sqlite import directory
from shardq.storage.sqlite.bundles import CHOSEN, chosen
from shardq.storage.sqlite.slicing import split

__all__ = ["Taken", "read", "take"]

# A slice's key, position and deliveries, then its bundle: id, priority, due, enqueued at, count, data.
_Row: TypeAlias = tuple[int, int, int, int, bytes, int, int, int, int, bytes | None]

_BUNDLE = "bundle_id, priority, sent_due, enqueued_at, sent_count, data"
_HELD = f"""
    SELECT slice_key, first, count, deliveries + unstarted, {_BUNDLE} FROM slice INDEXED BY slice_by_token
    WHERE shard_key = ? AND token = ? ORDER BY priority, sent_due, bundle_id, first
"""
_DELIVERABLE = f"""
    SELECT slice_key, first, count, deliveries + 1, {_BUNDLE} FROM slice INDEXED BY slice_by_due
    WHERE shard_key = ? AND priority IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9) AND due <= ? AND processed_at IS NULL
    ORDER BY priority, due, bundle_id, first
"""
_PROLONG = f"UPDATE slice SET due = ?2 WHERE {CHOSEN}"
_TAKE = f"""
    UPDATE slice SET due = ?2, token = ?3, deliveries = deliveries + 1 - ?4, unstarted = ?4 WHERE {CHOSEN}
"""
_READ = """
    SELECT slice_key, bundle_data.data
    FROM slice INDEXED BY slice_by_token JOIN bundle_data USING (data_key) WHERE shard_key = ? AND token = ?
"""


class Taken(msgspec.Struct, frozen=True):
    """What a claim took, in the order of delivery; the data of long bundles is still to be read."""

    shard_key: int | None
    rows: tuple[_Row, ...]
    now: int

    @property
    def is_whole(self) -> bool:
        """True when the data of all is here."""
        return all(row[-1] is not None for row in self.rows)

    def claimed(self, lease: int, data: dict[int, bytes] | None = None) -> Claimed:
        """The answer; slices whose data is missing were purged since, and are left out."""
        data = data or {}
        slices = []
        for key, first, count, deliveries, *bundle, own in self.rows:
            body = own if own is not None else data.get(key)
            if body is not None:
                slices.append(ClaimedSlice(Bundle(*bundle, body), first, count, deliveries))  # type: ignore[arg-type, call-arg]
        return Claimed(tuple(slices), self.now + lease)


def take(sql: sqlite3.Connection, request: Claim, now: int) -> Taken:
    """Hide up to the limit of deliverable messages, or again what the token holds."""
    shard_key = directory.key_of(sql, request.shard)
    if shard_key is None:
        return Taken(None, (), now)
    held = sql.execute(_HELD, (shard_key, request.token)).fetchall()
    until = now + request.lease
    if held:
        sql.execute(_PROLONG, (chosen([row[0] for row in held]), until))
        return Taken(shard_key, tuple(held), now)
    rows = _deliverable(sql, shard_key, now, request.limit)
    if rows:
        keys = chosen([row[0] for row in rows])
        sql.execute(_TAKE, (keys, until, request.token, int(not request.started)))
    return Taken(shard_key, tuple(rows), now)


def _deliverable(sql: sqlite3.Connection, shard_key: int, now: int, limit: int) -> list[_Row]:
    rows: list[_Row] = []
    wanted = limit
    cursor = sql.execute(_DELIVERABLE, (shard_key, now))
    for row in cursor:
        rows.append(row)
        wanted -= row[2]
        if wanted <= 0:
            break
    cursor.close()
    if wanted < 0:
        key, first, count, *rest = rows[-1]
        split(sql, key, count + wanted)
        rows[-1] = (key, first, count + wanted, *rest)  # type: ignore[assignment]
    return rows


def read(sql: sqlite3.Connection, request: Claim, taken: Taken) -> Claimed:
    """Return the slices with the data of all; those that were purged since are left out."""
    return taken.claimed(request.lease, dict(sql.execute(_READ, (taken.shard_key, request.token))))
