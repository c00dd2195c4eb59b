"""Bundles: one row each until they are cut, deleted with their last message.

Data of up to ``SHORT`` bytes is in the row, and in every slice that a cut makes. Longer data is stored once, beside
the slices, so that no change of a slice rewrites it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import zip_longest

import msgspec

from shardq.base.shard import Shard
from shardq.storage.requests import BLOCKED, BLOCKED_AFTER, Append, Span
from shardq.storage.sqlite import directory, queues
from shardq.storage.sqlite.tables import BlobConnection

__all__ = [
    "BEHIND",
    "BUNDLE",
    "DATA",
    "MEMORY",
    "SHORT",
    "SQL_DELETE_HELD",
    "STILL_BEHIND",
    "Change",
    "append",
    "delete",
    "delete_all",
    "delete_held",
    "long_data",
    "prune",
]

MEMORY = 15 * 60 * 1_000_000
"""For how long the id of a finished bundle is known at least, in microseconds."""

SHORT = 4000
"""Bytes of data that are stored in the row of a slice."""

DATA = "coalesce(data, (SELECT data FROM [bundle_data] WHERE [bundle_data].data_key = [slice].data_key))"
"""The data of a slice's bundle."""

BEHIND = 1 << 61
"""The part of a due time that is added while others of the group are before the slice: it lies beyond all moments
then."""

STILL_BEHIND = f"iif(due >= {BEHIND}, {BEHIND}, 0)"
"""The part that is added to a slice's new due time, so that it stays where it is in its group."""

BLOCKS = f"(token IS NOT NULL AND due % {BEHIND} > {BLOCKED_AFTER})"
"""Whether a slice blocks its group."""

HOLDER = f"iif({BLOCKS}, x'{BLOCKED.hex()}', token)"
"""The token under which a slice is held."""

BUNDLE = "bundle_id, priority, sent_due, enqueued_at, sent_count, data, expires_at, message_group"
"""The columns of a slice's bundle, in the order of its fields."""

_PERIOD = 300_000_000

_LAST_DATA = "SELECT coalesce(max(data_key), 0) FROM [bundle_data]"
_INSERT_EMPTY = "INSERT INTO [bundle_data] (data_key, data) VALUES (?, zeroblob(?))"
_INSERT_DATA = "INSERT INTO [bundle_data] (data_key, data) VALUES (?, ?)"
_READ_DATA = "SELECT data FROM [bundle_data] WHERE data_key = ?"
_IS_NEW = """
    NOT EXISTS (SELECT 1 FROM [slice] WHERE bundle_id = ?2)
    AND NOT EXISTS (
        SELECT 1 FROM [finished_id]
        WHERE period IN (SELECT period FROM [finished_period] WHERE period >= ?9) AND bundle_id = ?2
        AND incarnation = (SELECT incarnation FROM [queue] WHERE name = ?10)
    )
"""
SQL_INSERT = f"""
    INSERT INTO [slice] (
        shard_key, bundle_id, first, count, priority, due, deliveries, unstarted,
        sent_due, enqueued_at, sent_count, data_key, data, expires_at
    )
    SELECT ?1, ?2, 0, ?6, ?3, ?4, 0, 0, ?4, ?5, ?6, ?7, ?8, ?11 WHERE ?12 OR ({_IS_NEW})
"""
# At the end of its group, or at a place that is free.
_INSERT_GROUPED = f"""
    INSERT INTO [slice] (
        shard_key, bundle_id, first, count, priority, due, deliveries, unstarted,
        sent_due, enqueued_at, sent_count, data_key, data, expires_at, message_group, place
    )
    SELECT
        ?1, ?2, 0, ?6, ?3, ?4 + iif(coalesce(?13, last.place) IS NULL, 0, {BEHIND}), 0, 0,
        ?4, ?5, ?6, ?7, ?8, ?11, ?12, coalesce(?13, last.place, 0)
    FROM (
        SELECT (
            SELECT place + count FROM [slice] INDEXED BY [slice_by_group]
            WHERE shard_key = ?1 AND message_group = ?12 AND message_group <> '' AND processed_at IS NULL
            ORDER BY place DESC LIMIT 1
        ) AS place
    ) AS last
    WHERE {_IS_NEW}
"""
# A bundle ends with its last slice. If it was cut, others than the chosen ones are looked for.
_OVER = """
    FROM [slice] AS going WHERE {0} AND (
        count = sent_count OR NOT EXISTS (
            SELECT 1 FROM [slice] AS other WHERE other.bundle_id = going.bundle_id AND NOT other.{0}
        )
    )
"""
_ALL = "shard_key = ?1 AND processed_at IS NULL"
_ALL_OVER = f"""
    FROM [slice] AS going WHERE {_ALL} AND (
        count = sent_count OR NOT EXISTS (
            SELECT 1 FROM [slice] AS other WHERE other.bundle_id = going.bundle_id AND other.processed_at IS NOT NULL
        )
    )
"""
_PERIOD_BEGINS = "INSERT OR IGNORE INTO [finished_period] (period) VALUES (?)"
_REMEMBER = """
    INSERT OR REPLACE INTO [finished_id] (period, bundle_id, incarnation)
    SELECT ?2, bundle_id, coalesce((SELECT incarnation FROM [queue] WHERE name = ?3), 0)
"""
_DELETE_DATA = "DELETE FROM [bundle_data] WHERE data_key IN (SELECT data_key"
_PERIODS = "SELECT min(period), max(period) FROM [finished_period]"
_PRUNE = """
    DELETE FROM [finished_id] WHERE (period, bundle_id) IN (
        SELECT period, bundle_id FROM [finished_id] WHERE period = ? ORDER BY period, bundle_id LIMIT ?
    )
"""
_PRUNE_PERIOD = "DELETE FROM [finished_period] WHERE period = ?"


class Change:
    """A statement about some slices, in two forms: that for one slice does without the work for many."""

    MANY = "slice_key IN (SELECT value FROM json_each(?1))"

    def __init__(self, statement: str) -> None:
        self.one = statement.format("slice_key = ?1")
        self.many = statement.format(self.MANY)

    def run(self, sql: sqlite3.Connection, slice_keys: Sequence[int], *values: object) -> int:
        """Carry it out, with further values from the second parameter on; returns how many rows it was about."""
        if len(slice_keys) == 1:
            return sql.execute(self.one, (slice_keys[0], *values)).rowcount
        return sql.execute(self.many, (msgspec.json.encode(slice_keys).decode(), *values)).rowcount

    def find(self, sql: sqlite3.Connection, slice_keys: Sequence[int]) -> sqlite3.Cursor:
        """Return the rows of a query about the slices."""
        return sql.execute(self.many, (msgspec.json.encode(slice_keys).decode(),))


_CHOSEN_OVER = _OVER.format(Change.MANY)
_REMEMBER_CHOSEN = _REMEMBER + _CHOSEN_OVER
_DELETE_CHOSEN_DATA = f"{_DELETE_DATA} {_CHOSEN_OVER} AND data_key IS NOT NULL)"
_DELETE_CHOSEN = f"DELETE FROM [slice] WHERE {Change.MANY}"
_DELETE_ONE = "DELETE FROM [slice] WHERE {} RETURNING bundle_id, count < sent_count, data_key"
_KEYED = _DELETE_ONE.format("slice_key = ?")
SQL_DELETE_HELD = _DELETE_ONE.format("""
    bundle_id = ? AND first = ? AND count = ? AND token = ? AND processed_at IS NULL
    AND shard_key = (SELECT shard_key FROM [shard] WHERE queue = ? AND time_shard = ? AND number = ?)
""")
_REST = "SELECT 1 FROM [slice] WHERE bundle_id = ? LIMIT 1"
_REMEMBER_ONE = """
    INSERT OR REPLACE INTO [finished_id] (period, bundle_id, incarnation)
    VALUES (?, ?, coalesce((SELECT incarnation FROM [queue] WHERE name = ?), 0))
"""
_DELETE_DATA_OF_ONE = "DELETE FROM [bundle_data] WHERE data_key = ?"
_REMEMBER_ALL = _REMEMBER + _ALL_OVER
_DELETE_ALL_DATA = f"{_DELETE_DATA} {_ALL_OVER} AND data_key IS NOT NULL)"
_DELETE_ALL = f"DELETE FROM [slice] WHERE {_ALL}"


def append(sql: sqlite3.Connection, request: Append, now: int, places: Sequence[int] = ()) -> None:
    """Store the bundles that are not known, each as one ready slice; raises QueueNotFound.

    Those of a group come at its end; or at ``places``, behind what is there, until the group is armed.
    """
    shard = request.shard
    queues.announce(sql, shard.queue)
    row = sql.execute(directory.SQL_KEY, (shard.queue, shard.time_shard, shard.number)).fetchone()
    shard_key = row[0] if row else directory.enter(sql, shard)
    known_since = (now - MEMORY) // _PERIOD
    for bundle, place in zip_longest(request.bundles, places):
        head = (shard_key, bundle.id, bundle.priority, bundle.due, bundle.enqueued_at, bundle.count)
        insert = _INSERT_GROUPED if bundle.group else SQL_INSERT
        own = (bundle.group, place) if bundle.group else (request.fresh,)
        tail = (known_since, shard.queue, bundle.expires_at, *own)
        if len(bundle.data) <= SHORT:
            sql.execute(insert, (*head, None, bundle.data, *tail))
            continue
        key = sql.execute(_LAST_DATA).fetchone()[0] + 1
        if sql.execute(insert, (*head, key, None, *tail)).rowcount == 1:
            _insert_data(sql, key, bundle.data)


def _insert_data(sql: sqlite3.Connection, data_key: int, data: bytes) -> None:
    """Store data beside the slices. As a value of the statement it would be copied twice before it is stored.

    An application's connection gets it as a value: nothing bounds what handles on blobs leave behind there.
    """
    if not isinstance(sql, BlobConnection):
        sql.execute(_INSERT_DATA, (data_key, data))
        return
    sql.execute(_INSERT_EMPTY, (data_key, len(data)))
    with sql.blobopen("bundle_data", "data", data_key) as blob:
        blob.write(data)


def long_data(sql: sqlite3.Connection, data_key: int) -> bytes:
    """Return data that is stored beside the slices.

    Not by a query: that puts it together in memory of SQLite's first. For a full bundle the system had to provide that
    memory anew each time. On an application's connection it is a query, as in `_insert_data`.
    """
    if not isinstance(sql, BlobConnection):
        data: bytes = sql.execute(_READ_DATA, (data_key,)).fetchone()[0]
        return data
    with sql.blobopen("bundle_data", "data", data_key, readonly=True) as blob:
        return blob.read()


def delete(sql: sqlite3.Connection, queue: str, slice_keys: Sequence[int], now: int) -> None:
    """Delete slices of the queue that exist, and remember the bundles that have ended."""
    if len(slice_keys) == 1:
        over = _delete_one(sql, queue, now, _KEYED, slice_keys)
    else:
        chosen = msgspec.json.encode(slice_keys).decode()
        over = sql.execute(_REMEMBER_CHOSEN, (chosen, now // _PERIOD, queue)).rowcount
        sql.execute(_DELETE_CHOSEN_DATA, (chosen,))
        sql.execute(_DELETE_CHOSEN, (chosen,))
    if over:
        _enter_period(sql, now, over)


def delete_held(sql: sqlite3.Connection, shard: Shard, spans: Sequence[Span], now: int) -> list[Span]:
    """Delete the slices that spans hold whole, as most acks do; returns the other spans.

    Each is found and deleted in one statement.
    """
    queue, rest, over = shard.queue, list[Span](), 0
    for span in spans:
        held = (span.bundle_id, span.first, span.count, span.token, queue, shard.time_shard, shard.number)
        deleted = _delete_one(sql, queue, now, SQL_DELETE_HELD, held)
        if deleted is None:
            rest.append(span)
        else:
            over += deleted
    if over:
        _enter_period(sql, now, over)
    return rest


def _delete_one(
    sql: sqlite3.Connection, queue: str, now: int, statement: str, values: Sequence[object]
) -> int | None:
    """Delete one slice. Returns how many bundles ended, 0 or 1; None without such a slice."""
    gone = sql.execute(statement, values).fetchall()
    if not gone:
        return None
    ((bundle_id, is_cut, data_key),) = gone
    if is_cut and sql.execute(_REST, (bundle_id,)).fetchone():
        return 0
    sql.execute(_REMEMBER_ONE, (now // _PERIOD, bundle_id, queue))
    if data_key is not None:
        sql.execute(_DELETE_DATA_OF_ONE, (data_key,))
    return 1


def delete_all(sql: sqlite3.Connection, queue: str, shard_key: int, now: int) -> None:
    """Delete all slices of the shard but the history."""
    over = sql.execute(_REMEMBER_ALL, (shard_key, now // _PERIOD, queue)).rowcount
    sql.execute(_DELETE_ALL_DATA, (shard_key,))
    sql.execute(_DELETE_ALL, (shard_key,))
    if over:
        _enter_period(sql, now, over)


def prune(sql: sqlite3.Connection, now: int, limit: int) -> int:
    """Forget up to ``limit`` ids that were remembered for long enough; returns how many."""
    oldest, _ = sql.execute(_PERIODS).fetchone()
    return 0 if oldest is None or oldest >= (now - MEMORY) // _PERIOD else _prune(sql, oldest, limit)


def _enter_period(sql: sqlite3.Connection, now: int, added: int) -> None:
    """Note that this number of bundles is remembered in this period.

    More are forgotten than added, which bounds them even without sweeps.
    """
    oldest, newest = sql.execute(_PERIODS).fetchone()
    if newest != now // _PERIOD:
        sql.execute(_PERIOD_BEGINS, (now // _PERIOD,))
    if oldest is not None and oldest < (now - MEMORY) // _PERIOD:
        _prune(sql, oldest, 2 * added)


def _prune(sql: sqlite3.Connection, oldest: int, limit: int) -> int:
    forgotten = sql.execute(_PRUNE, (oldest, limit)).rowcount
    if forgotten < limit:
        sql.execute(_PRUNE_PERIOD, (oldest,))
    return forgotten
