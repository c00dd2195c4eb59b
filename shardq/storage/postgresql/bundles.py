"""Bundles: one row each until they are cut, deleted with their last message.

Data of up to ``SHORT`` bytes is in the row, and in every slice that a cut makes. Longer data is stored once, beside
the slices, so that no change of a slice rewrites it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from shardq.storage.postgresql import groups
from shardq.storage.postgresql.connections import Id, Sql
from shardq.storage.postgresql.directory import HOME, RowKeys, pinned
from shardq.storage.postgresql.locks import AWAITED, lock
from shardq.storage.postgresql.read_cursors import late_of, lower
from shardq.storage.postgresql.rows import BEHIND, CHOSEN, PIECES, Piece, keys_of, named
from shardq.storage.requests import Append

__all__ = [
    "MEMORY",
    "append",
    "append_at_once",
    "data_of",
    "delete",
    "empty_table",
    "old_tables",
    "period_of",
    "remember_moved",
]

MEMORY = 15 * 60 * 1_000_000
"""For how long the id of a finished bundle is known at least, in microseconds."""

_SHORT = 1900  # bytes of data in the row of a slice: with more the server would move it out of line
_PERIOD = 300_000_000

_COLUMNS = """
    shard_key, bundle_id, first, count, sent_count, priority, due, sent_due, enqueued_at, expires_at, data,
    message_group, place
"""
# A client may give a statement up, repeat it elsewhere and have some messages acked before the first one reaches the
# server. Then the bundle is finished, or its first row has another key, which the unique index does not find.
_UNKNOWN = """
    (
        SELECT s.first FROM @slice s WHERE s.shard_key = row_keys.shard_key AND s.bundle_id = {0} LIMIT 1
    ) IS NULL AND (
        SELECT f.first FROM @finished f
        WHERE f.bundle_id = {0} AND f.queue_key = row_keys.queue_key AND f.first < 0 LIMIT 1
    ) IS NULL
"""
# {0}: of a shard that is held; {1}: what is answered. Those without a group have the place 0.
_APPEND = f"""
    WITH row_keys AS MATERIALIZED ({HOME} FOR KEY SHARE OF s {{0}}),
    new AS (
        INSERT INTO @slice ({_COLUMNS})
        SELECT row_keys.shard_key, b.id, 0, b.count, b.count, b.priority, b.due + b.behind, b.due, b.at, b.expires_at,
            b.data, b.message_group, b.place
        FROM row_keys CROSS JOIN unnest(
            $4::uuid[], $5::smallint[], $6::bigint[], $7::bigint[], $8::int[], $9::bigint[], $10::bytea[],
            $13::bytea[], $14::bigint[], $15::bigint[]
        ) AS b (id, priority, due, at, count, expires_at, data, message_group, place, behind)
        WHERE {_UNKNOWN.format("b.id")}
        ON CONFLICT (shard_key, bundle_id, first) DO NOTHING RETURNING bundle_id
    ),
    long AS (
        INSERT INTO @bundle_data (shard_key, bundle_id, data)
        SELECT row_keys.shard_key, d.id, d.data
        FROM row_keys CROSS JOIN unnest($11::uuid[], $12::bytea[]) AS d (id, data) JOIN new ON new.bundle_id = d.id
        ON CONFLICT DO NOTHING
    )
    SELECT {{1}} FROM row_keys
"""
# It waits for no lock: what is finished meanwhile it would not see.
_APPEND_FRESH = _APPEND.format("SKIP LOCKED", AWAITED.format("$16", "$17"))
_APPEND_NEW = _APPEND.format("", "ARRAY(SELECT bundle_id FROM new)")
# One bundle without a group, as most sends are: without arrays, which cost as much as the rest.
_APPEND_ONE = f"""
    WITH row_keys AS MATERIALIZED ({HOME} FOR KEY SHARE OF s SKIP LOCKED),
    new AS (
        INSERT INTO @slice (
            shard_key, bundle_id, first, count, sent_count, priority, due, sent_due, enqueued_at, expires_at, data
        )
        SELECT row_keys.shard_key, $4::uuid, 0, $8::int, $8::int, $5::smallint, $6, $6, $7, $9::bigint, {{}}
        FROM row_keys
        WHERE {_UNKNOWN.format("$4::uuid")}
        ON CONFLICT (shard_key, bundle_id, first) DO NOTHING RETURNING shard_key, bundle_id
    )
    {{}}
    SELECT {AWAITED.format("$11", "$12")} FROM row_keys
"""
_APPEND_SHORT = _APPEND_ONE.format("$10::bytea", "")
_APPEND_LONG = _APPEND_ONE.format(
    "NULL",
    """, long AS (
        INSERT INTO @bundle_data (shard_key, bundle_id, data) SELECT shard_key, bundle_id, $10::bytea FROM new
    )""",
)
# Bundles that another attempt has stored since the statement above began, and that may be finished.
_KNOWN = f"""
    SELECT f.bundle_id, true FROM @finished f WHERE f.bundle_id = ANY ($3::uuid[]) AND f.queue_key = $2 AND f.first < 0
    UNION ALL
    SELECT s.bundle_id, false FROM {named("$3::uuid[]", "bundle_id")}
    JOIN @slice s ON s.shard_key = a.shard_key AND s.bundle_id = a.bundle_id AND s.first > 0
"""
_DELETE = f"DELETE FROM @slice s USING {PIECES} WHERE {CHOSEN}"
_REST = """
    SELECT a.bundle_id FROM unnest($2::uuid[]) AS a (bundle_id)
    WHERE (SELECT s.first FROM @slice s WHERE s.shard_key = $1 AND s.bundle_id = a.bundle_id LIMIT 1) IS NOT NULL
"""
_BUNDLES = named("$2::uuid[]", "bundle_id")
_DELETE_DATA = f"""
    DELETE FROM @bundle_data d USING {_BUNDLES} WHERE d.shard_key = a.shard_key AND d.bundle_id = a.bundle_id
"""
_REMEMBER = """
    INSERT INTO @finished (period, queue_key, bundle_id) SELECT $1, $2, id FROM unnest($3::uuid[]) AS id
"""
_REMEMBER_MOVED = """
    INSERT INTO @finished (period, queue_key, bundle_id, first, count)
    SELECT $1, $2, a.id, a.first, a.count FROM unnest($3::uuid[], $4::int[], $5::int[]) AS a (id, first, count)
"""
_DATA = f"""
    SELECT d.bundle_id, d.data FROM {_BUNDLES}
    JOIN @bundle_data d ON d.shard_key = a.shard_key AND d.bundle_id = a.bundle_id
"""
_OLDEST = " UNION ALL ".join(f"(SELECT {table}, period FROM @finished_{table} LIMIT 1)" for table in range(5))
_HOLD = (
    "SET LOCAL lock_timeout = '50ms'; LOCK TABLE @finished_{} IN SHARE ROW EXCLUSIVE MODE"  # reads continue
)
_ANY_SINCE = "SELECT EXISTS (SELECT FROM @finished_{} WHERE period >= $1)"
_EMPTY = "TRUNCATE @finished_{}"


def append_at_once(sql: Sql, request: Append, waiting: Sequence[int | None], now: int) -> bool | None:
    """Store bundles that are not finished, in one statement; None, and nothing stored, when that does not do.

    Return whether a client may wait for them, by the numbers of the locks of those who wait.
    """
    if late_of(request.bundles, now):
        return None
    if len(request.bundles) > 1:
        stored = sql.changed(_APPEND_FRESH, *_values(request), *waiting)
    else:
        shard, (bundle,) = request.shard, request.bundles
        stored = sql.changed(
            _APPEND_SHORT if len(bundle.data) <= _SHORT else _APPEND_LONG,
            *(shard.queue, shard.time_shard, shard.number, Id(bundle.id)),
            *(bundle.priority, bundle.due, bundle.enqueued_at, bundle.count, bundle.expires_at, bundle.data),
            *waiting,
        )
    return bool(stored[0][0]) if stored else None


def append(sql: Sql, request: Append, _now: int, places: Sequence[int] = ()) -> None:
    """Store the bundles that are not known, each as one ready slice; raises QueueNotFound.

    Those of a group come at its end; or at ``places``, behind what is there, until the group is armed.
    """
    row_keys = pinned(sql, request.shard)
    values = _values(request)
    begins: Mapping[bytes, int] = {}
    if request.shard.is_grouped:
        of_all = [bundle.group.encode() for bundle in request.bundles]
        if not places:
            lock(sql, row_keys.shard_key, of_all)
            places, begins = groups.places_at_end(sql, row_keys.shard_key, request.bundles)
        values = _values(request, of_all, places)
    else:  # before the change, as it may fail in a transaction of the application
        lower(sql, row_keys.shard_key, late_of(request.bundles, sql.now()))
    ((new,),) = sql.changed(_APPEND_NEW, *values)
    if new:
        _take_back(sql, row_keys, new)
    groups.arm(sql, row_keys.shard_key, begins)


def _values(request: Append, of_all: Sequence[bytes] = (), places: Sequence[int] = ()) -> list[object]:
    shard, bundles = request.shard, request.bundles
    short = [bundle.data if len(bundle.data) <= _SHORT else None for bundle in bundles]
    long = [bundle for bundle in bundles if len(bundle.data) > _SHORT]
    return [
        *(shard.queue, shard.time_shard, shard.number),
        [Id(bundle.id) for bundle in bundles],
        [bundle.priority for bundle in bundles],
        [bundle.due for bundle in bundles],
        [bundle.enqueued_at for bundle in bundles],
        [bundle.count for bundle in bundles],
        [bundle.expires_at for bundle in bundles],
        short,
        [Id(bundle.id) for bundle in long],
        [bundle.data for bundle in long],
        list(of_all) or [b""] * len(bundles),
        list(places) or [0] * len(bundles),
        [BEHIND if of_all else 0] * len(bundles),
    ]


def _take_back(sql: Sql, row_keys: RowKeys, new: Collection[bytes]) -> None:
    """Delete what was stored though another attempt had stored it, which could not be seen then."""
    known: dict[bytes, bool] = dict(
        sql.all(_KNOWN, row_keys.shard_key, row_keys.queue_key, [Id(each) for each in new])
    )
    if not known:
        return
    ids = [Id(each) for each in known]
    sql.run(_DELETE, row_keys.shard_key, ids, [0] * len(ids))
    if over := [Id(each) for each, has_ended in known.items() if has_ended]:
        sql.run(_DELETE_DATA, row_keys.shard_key, over)


def delete(sql: Sql, row_keys: RowKeys, pieces: Sequence[Piece], now: int) -> None:
    """Delete slices that this transaction has locked, and remember the bundles that end with them."""
    if not pieces:
        return
    counts: dict[bytes, int] = {}
    for piece in pieces:
        counts[piece.bundle_id] = counts.get(piece.bundle_id, 0) + piece.count
    cut = {piece.bundle_id for piece in pieces if counts[piece.bundle_id] < piece.sent_count}
    lock(sql, row_keys.shard_key, cut)
    sql.run(_DELETE, row_keys.shard_key, *keys_of(pieces))
    if cut:
        rest = sql.all(_REST, row_keys.shard_key, [Id(each) for each in sorted(cut)])
        for (bundle_id,) in rest:
            del counts[bundle_id]
    over = [Id(bundle_id) for bundle_id in counts]
    if not over:
        return
    sql.run(_REMEMBER, period_of(now), row_keys.queue_key, over)
    long = {piece.bundle_id for piece in pieces if piece.is_long}
    if long := long.intersection(over):
        sql.run(_DELETE_DATA, row_keys.shard_key, [Id(each) for each in sorted(long)])


def remember_moved(sql: Sql, row_keys: RowKeys, pieces: Sequence[Piece], now: int) -> None:
    """Remember slices that are stored elsewhere now, so that they are lost to their holder, not gone."""
    if pieces:
        ids, firsts = keys_of(pieces)
        counts = [piece.count for piece in pieces]
        sql.run(_REMEMBER_MOVED, period_of(now), row_keys.queue_key, ids, firsts, counts)


def data_of(sql: Sql, shard_key: int, ids: Iterable[bytes]) -> dict[bytes, bytes]:
    """Return the data of those bundles whose data is stored beside their slices."""
    asked = [Id(each) for each in set(ids)]
    return dict(sql.all(_DATA, shard_key, asked)) if asked else {}


def period_of(now: int) -> int:
    """Return the number of the five minutes to which a moment belongs."""
    return now // _PERIOD


def old_tables(sql: Sql, now: int) -> list[int]:
    """Return which tables of finished ids begin with one that was remembered for long enough."""
    since = period_of(now - MEMORY)
    return [table for table, period in sql.all(_OLDEST) if period < since]


def empty_table(sql: Sql, table: int, now: int) -> int:
    """Empty a table of finished ids if all in it were remembered for long enough; returns how many tables it was.

    One that is used again is found so before anybody is kept from it. Raises StoreUnavailable where somebody reads it,
    such as a backup: it is left for the next time.
    """
    if _is_used(sql, table, now):
        return 0
    sql.script(_HOLD.format(table))
    if _is_used(sql, table, now):
        return 0
    sql.script(_EMPTY.format(table))
    return 1


def _is_used(sql: Sql, table: int, now: int) -> bool:
    ((is_used,),) = sql.all(_ANY_SINCE.format(table), period_of(now - MEMORY))
    return bool(is_used)
