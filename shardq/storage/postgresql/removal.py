"""Removing messages whatever their state: one, a shard's, a queue's; and those of the history.

A sweep removes all that no operation needs any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from shardq.base.shard import Shard
from shardq.errors import StoreUnavailable
from shardq.storage.postgresql import bundles, consumers, dedupe, directory, groups, read_cursors
from shardq.storage.postgresql.connections import Sql
from shardq.storage.postgresql.directory import RowKeys, row_keys_of
from shardq.storage.postgresql.locks import lock, lock_claims, lock_shard
from shardq.storage.postgresql.rows import CHOSEN, PIECE, PIECES, Piece, keys_of
from shardq.storage.postgresql.session import Session
from shardq.storage.postgresql.slicing import cut_out
from shardq.storage.requests import QueueRecord, Sweep

__all__ = ["drop", "drop_rows", "expire", "orphans", "purge", "remove", "show_hidden", "sweep", "tidy"]

_AT_ONCE = 1000  # slices that are removed in one transaction

_ALL = f"""
    SELECT {PIECE} FROM @slice s WHERE s.shard_key = $1 AND s.processed_at IS NULL
    ORDER BY s.priority, s.due, s.bundle_id, s.first LIMIT $2 FOR UPDATE OF s
"""
_DROP_QUEUE = "DELETE FROM @queue WHERE name = $1 RETURNING queue_key"
_DROP_SEEN_QUEUE = "DELETE FROM @queue WHERE name = $1 AND version = $2 AND settings = $3 RETURNING queue_key"
_DROP_SHARDS = "DELETE FROM @shard WHERE queue_key = $1 RETURNING shard_key"
_DROP_KEYS = "DELETE FROM @key WHERE queue_key = $1"
_DROP_CONSUMERS = "DELETE FROM @consumer WHERE queue_key = $1"
_DROP_ROWS = """
    WITH gone AS (
        DELETE FROM @slice s USING (
            SELECT shard_key, bundle_id, first FROM @slice WHERE shard_key = $1 ORDER BY bundle_id, first LIMIT $2
        ) AS a
        WHERE s.shard_key = a.shard_key AND s.bundle_id = a.bundle_id AND s.first = a.first RETURNING 1
    ),
    data AS (
        DELETE FROM @bundle_data d USING (
            SELECT shard_key, bundle_id FROM @bundle_data WHERE shard_key = $1 ORDER BY bundle_id LIMIT $2
        ) AS a
        WHERE d.shard_key = a.shard_key AND d.bundle_id = a.bundle_id RETURNING 1
    ),
    low AS (
        DELETE FROM @group_low l USING (
            SELECT shard_key, message_group, place FROM @group_low WHERE shard_key = $1
            ORDER BY message_group, place LIMIT $2
        ) AS a
        WHERE l.shard_key = a.shard_key AND l.message_group = a.message_group AND l.place = a.place RETURNING 1
    ),
    watermarks AS (DELETE FROM @watermark WHERE shard_key = $1 RETURNING 1)
    SELECT (SELECT count(*) FROM gone) + (SELECT count(*) FROM data) + (SELECT count(*) FROM low)
        + (SELECT count(*) FROM watermarks)
"""
# Low places of groups that began long ago and have nothing left. An append that raises one may be part of a transaction
# of the application, which nobody waits for.
_DROP_LOW = """
    DELETE FROM @group_low l USING (
        SELECT o.* FROM @queue q JOIN @shard h ON h.queue_key = q.queue_key CROSS JOIN LATERAL (
            SELECT g.shard_key, g.message_group, g.place FROM @group_low g
            WHERE g.shard_key = h.shard_key AND g.place < $2 AND NOT EXISTS (
                SELECT FROM @slice s
                WHERE s.shard_key = g.shard_key AND s.message_group = g.message_group AND s.message_group <> ''
                AND s.processed_at IS NULL AND s.place >= g.place
            ) LIMIT $3 FOR UPDATE OF g SKIP LOCKED
        ) AS o
        WHERE q.name = $1 LIMIT $3
    ) AS a
    WHERE l.shard_key = a.shard_key AND l.message_group = a.message_group AND l.place = a.place
"""
_LOW_SECONDS = 3600
# Vacuum skips pages that are unchanged. Beside an old snapshot the other pages hold only dead rows, so the planner
# takes the table for empty. A sweep changes some rows of no shard, so vacuum reads their pages and counts live rows.
# One of the rows tells when they were changed last.
_SHOW_ROWS = """
    UPDATE @slice SET sent_due = $1
    WHERE shard_key = -1 AND priority = 1 AND processed_at IS NULL AND sent_due < $1 - 300000000 AND (
        SELECT one.sent_due FROM @slice one
        WHERE one.shard_key = -1 AND one.bundle_id = md5('1')::uuid AND one.first = 0
    ) < $1 - 300000000
"""
# Shards that hold something, one after the other by their keys.
_ORPHANS = """
    WITH RECURSIVE of_slices AS (
        (SELECT shard_key FROM @slice WHERE shard_key > 0 ORDER BY shard_key LIMIT 1)
        UNION ALL
        SELECT (SELECT s.shard_key FROM @slice s WHERE s.shard_key > k.shard_key ORDER BY s.shard_key LIMIT 1)
        FROM of_slices k WHERE k.shard_key IS NOT NULL
    ), of_data AS (
        (SELECT shard_key FROM @bundle_data WHERE shard_key > 0 ORDER BY shard_key LIMIT 1)
        UNION ALL
        SELECT (SELECT d.shard_key FROM @bundle_data d WHERE d.shard_key > k.shard_key ORDER BY d.shard_key LIMIT 1)
        FROM of_data k WHERE k.shard_key IS NOT NULL
    ), of_low AS (
        (SELECT shard_key FROM @group_low WHERE shard_key > 0 ORDER BY shard_key LIMIT 1)
        UNION ALL
        SELECT (SELECT l.shard_key FROM @group_low l WHERE l.shard_key > k.shard_key ORDER BY l.shard_key LIMIT 1)
        FROM of_low k WHERE k.shard_key IS NOT NULL
    ), of_watermarks AS (
        (SELECT shard_key FROM @watermark ORDER BY shard_key DESC, late DESC, step DESC LIMIT 1)
        UNION ALL
        SELECT (
            SELECT w.shard_key FROM @watermark w WHERE w.shard_key < k.shard_key
            ORDER BY w.shard_key DESC, w.late DESC, w.step DESC LIMIT 1
        )
        FROM of_watermarks k WHERE k.shard_key IS NOT NULL
    )
    SELECT k.shard_key FROM (
        SELECT shard_key FROM of_slices UNION SELECT shard_key FROM of_data UNION SELECT shard_key FROM of_low
        UNION SELECT shard_key FROM of_watermarks
    ) k
    WHERE k.shard_key IS NOT NULL AND NOT EXISTS (SELECT FROM @shard h WHERE h.shard_key = k.shard_key)
    ORDER BY k.shard_key
"""
_OLD = f"""
    SELECT h.shard_key, h.queue_key, {PIECE}
    FROM @queue q JOIN @shard h ON h.queue_key = q.queue_key CROSS JOIN LATERAL (
        SELECT * FROM @slice o WHERE o.shard_key = h.shard_key AND o.processed_at < $2 ORDER BY o.processed_at LIMIT $3
    ) AS s
    WHERE q.name = $1 LIMIT $3
"""
_STILL = f"""
    SELECT {PIECE} FROM @slice s JOIN {PIECES} ON {CHOSEN}
    WHERE s.processed_at IS NOT NULL ORDER BY s.bundle_id, s.first FOR UPDATE OF s
"""


def remove(sql: Sql, shard: Shard, bundle_id: bytes, position: int, now: int) -> bool:
    """Remove one message, out of the history too; False when it is not stored."""
    row_keys = row_keys_of(sql, shard)
    if row_keys is None:
        return False
    if shard.is_grouped:
        lock(sql, row_keys.shard_key, groups.of_bundles(sql, row_keys.shard_key, [bundle_id]))
    piece = cut_out(sql, row_keys, bundle_id, position)
    if piece is None:
        return False
    bundles.delete(sql, row_keys, [piece], now)
    groups.arm(sql, row_keys.shard_key, groups.vacated([piece]))
    return True


def purge(sql: Sql, shard: Shard, now: int) -> int:
    """Remove slices of the shard but the history, up to a thousand; returns how many messages they held.

    The last slice of a bundle never goes before the others, so the rest of a group keeps its order if it stops here.
    """
    row_keys = row_keys_of(sql, shard)
    if row_keys is None:
        return 0
    lock_claims(sql, shard)
    lock_shard(sql, row_keys.shard_key)
    pieces = [Piece(*row) for row in sql.all(_ALL, row_keys.shard_key, _AT_ONCE)]
    bundles.delete(sql, row_keys, pieces, now)
    groups.arm(sql, row_keys.shard_key, groups.vacated(pieces))
    return sum(piece.count for piece in pieces)


def drop(sql: Sql, queue: str, seen: QueueRecord | None, _now: int) -> list[int] | None:
    """Remove the record of the queue and its directory; returns the keys of its shards, or None without such a queue.

    An append that is under way is waited for; those that come later find no queue.
    """
    row = (
        sql.one(_DROP_QUEUE, queue)
        if seen is None
        else sql.one(_DROP_SEEN_QUEUE, queue, seen.version, seen.settings)
    )
    if row is None:
        return None
    shards = [key for (key,) in sql.all(_DROP_SHARDS, row[0])]
    sql.run(_DROP_KEYS, row[0])
    sql.run(_DROP_CONSUMERS, row[0])
    return shards


def orphans(sql: Sql) -> list[int]:
    """Return the keys of shards that hold something and are not in any directory: their queues were dropped."""
    return [key for (key,) in sql.all(_ORPHANS)]


def drop_rows(sql: Sql, shard_key: int, _now: int) -> int:
    """Remove rows of a shard that was dropped, up to a thousand of each kind; returns how many."""
    ((gone,),) = sql.all(_DROP_ROWS, shard_key, _AT_ONCE)
    return int(gone)


def expire(sql: Sql, queue: str, before: int, now: int) -> int:
    """Give slices up that were processed before a moment, up to a thousand; returns how many."""
    found: dict[RowKeys, list[Piece]] = {}
    for shard_key, queue_key, *columns in sql.all(_OLD, queue, before, _AT_ONCE):
        found.setdefault(RowKeys(shard_key, queue_key), []).append(Piece(*columns))
    return sum(_expire(sql, row_keys, found[row_keys], now) for row_keys in sorted(found))


def _expire(sql: Sql, row_keys: RowKeys, pieces: Sequence[Piece], now: int) -> int:
    still = [Piece(*row) for row in sql.all(_STILL, row_keys.shard_key, *keys_of(pieces))]
    bundles.delete(sql, row_keys, still, now)
    return len(still)


def sweep(session: Session, request: Sweep) -> int:
    """Remove up to 1,000 things of each kind; returns how many."""
    removed = session.write(_sweep, request, durable=False) + tidy(session)
    session.write(_show_rows, durable=False)
    removed += show_hidden(session, session.read(directory.listing, request.queue))
    for shard_key in session.read(orphans):
        removed += session.write(drop_rows, shard_key, durable=False)
    return removed


def tidy(session: Session) -> int:
    """Empty the tables of finished ids that were remembered for long enough; returns how many.

    Tables that another transaction reads just then are left for the next time.
    """
    emptied = 0
    for table in session.read(bundles.old_tables, session.now()):
        with suppress(StoreUnavailable):
            emptied += session.write(bundles.empty_table, table, durable=False)
    return emptied


def show_hidden(session: Session, shards: Sequence[Shard]) -> int:
    """Offer what watermarks or turns of these shards hide; returns how many shards had such."""
    found = session.read(read_cursors.hidden, shards, session.now())
    if found:
        session.write(read_cursors.show, found, durable=False)
    return len(found)


def _show_rows(sql: Sql, now: int) -> None:
    sql.run(_SHOW_ROWS, now)


def _sweep(sql: Sql, request: Sweep, now: int) -> int:
    return (
        expire(sql, request.queue, request.history_before, now)
        + dedupe.expire(sql, request.queue, now)
        + consumers.expire(sql, request.queue, now)
        + sql.run(_DROP_LOW, request.queue, now - _LOW_SECONDS * 1_000_000, _AT_ONCE)
    )
