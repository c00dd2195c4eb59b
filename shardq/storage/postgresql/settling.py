"""The operations of the holder of a claim on its slices: finish, extend, release, forward.

Messages that were moved elsewhere are remembered for a quarter of an hour, so that they are lost to their holder, not
gone.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from shardq.base.shard import Shard
from shardq.storage.abilities import Settle
from shardq.storage.postgresql import bundles, groups, queues
from shardq.storage.postgresql.connections import Id, Sql
from shardq.storage.postgresql.directory import HOME, RowKeys, pinned, row_keys_of
from shardq.storage.postgresql.locks import BRIEF, lock
from shardq.storage.postgresql.read_cursors import LATE, lower_released
from shardq.storage.postgresql.rows import CHOSEN, STILL_BEHIND, UNDELIVERED, Change, Piece
from shardq.storage.postgresql.slicing import Held, cut, hold
from shardq.storage.requests import Acknowledge, Append, Extend, Fenced, Forward, Release, Span

__all__ = [
    "acknowledge",
    "acknowledge_in_steps",
    "delete_at_once",
    "extend",
    "forward",
    "is_durable",
    "is_news",
    "is_plain",
    "release",
    "settle",
]

_KEEP = Change("""
    processed_at = $4, token = NULL, deliveries = s.deliveries + s.unstarted::int, unstarted = false
""")
_HIDE = Change(f"due = $4 + {STILL_BEHIND}")
_HIDE_LONGER = Change(f"due = greatest(s.due, $4 + {STILL_BEHIND})")
_START = Change("deliveries = s.deliveries + s.unstarted::int, unstarted = false")
_RELEASE = Change(f"""
    due = $4 + {STILL_BEHIND}, token = NULL, deliveries = s.deliveries + s.unstarted::int, unstarted = false
""")
_UNDO = "token = NULL, deliveries = s.deliveries - 1 + s.unstarted::int, unstarted = false"
_RELEASE_UNSTARTED = Change(f"due = $4 + {STILL_BEHIND}, {_UNDO}")
# A slice whose first delivery this was takes its place in the order again; of a group, it has its turn anew.
_PUT_BACK = Change(f"""
    due = CASE WHEN {UNDELIVERED} THEN least(s.sent_due, $4) ELSE $4 END + {STILL_BEHIND}, {_UNDO},
    turn = CASE WHEN s.message_group <> '' THEN $4 - {LATE} END
""")
# Deletes all of the spans or nothing. Each has to be a slice or the front of one, and not locked. A claim may hold many
# slices under its token, so they are found by their keys. The token is compared as no index can.
# A bundle ends with its last slice. Two acks of the last two would each see the other one. So the ack of a part locks
# another slice, which can be claimed meanwhile, but not deleted. Without another slice nothing is deleted here.
# SKIP LOCKED may wait all the same, for a newer version of that row, so it has a timeout.
# A transaction of the application locks no other slice: others could not ack that one until it ends.
_DELETE = f"""
    WITH row_keys AS MATERIALIZED ({HOME}),
    held AS MATERIALIZED (
        SELECT x.* FROM row_keys CROSS JOIN {{0}} AS a (bundle_id, first, count, token) CROSS JOIN LATERAL (
            SELECT s.shard_key, s.bundle_id, s.first, a.count, s.data IS NULL AS is_long,
                s.count > a.count AS is_longer, a.count = s.sent_count AS is_whole,
                s.count = a.count AND a.count < s.sent_count AS is_part
            FROM @slice s
            WHERE s.shard_key = row_keys.shard_key AND s.bundle_id = a.bundle_id AND s.first = a.first
            AND s.count >= a.count AND s.token IS NOT DISTINCT FROM a.token AND s.processed_at IS NULL
            FOR UPDATE OF s SKIP LOCKED
        ) AS x
    ),
    others AS MATERIALIZED (
        SELECT x.* FROM (
            SELECT *, set_config('lock_timeout', '{BRIEF}', true)
            FROM held WHERE is_part AND $10
        ) AS a CROSS JOIN LATERAL (
            SELECT s.first FROM @slice s
            WHERE s.shard_key = a.shard_key AND s.bundle_id = a.bundle_id AND s.first <> a.first
            ORDER BY s.first DESC LIMIT 1 FOR KEY SHARE OF s SKIP LOCKED
        ) AS x
    ),
    done AS MATERIALIZED (
        SELECT * FROM held WHERE (SELECT count(*) FROM held) = $8
        AND (SELECT count(*) FROM held WHERE is_part) = (SELECT count(*) FROM others)
    ),
    shorter AS (
        UPDATE @slice s SET first = s.first + a.count, count = s.count - a.count FROM done a
        WHERE a.is_longer AND {CHOSEN}
    ),
    gone AS (DELETE FROM @slice s USING done a WHERE NOT a.is_longer AND {CHOSEN}),
    data AS (
        DELETE FROM @bundle_data d USING done a
        WHERE a.is_whole AND a.is_long AND d.shard_key = a.shard_key AND d.bundle_id = a.bundle_id
    ),
    known AS (
        INSERT INTO @finished (period, queue_key, bundle_id)
        SELECT $9, row_keys.queue_key, a.bundle_id FROM row_keys, done a WHERE a.is_whole
    )
    SELECT count(*) FROM done
"""
_DELETE_MANY = _DELETE.format("unnest($4::uuid[], $5::int[], $6::int[], $7::uuid[])")
# A transaction keeps its locks while it waits for further ones. So it takes them in the order of all transactions.
_DELETE_IN_ORDER = _DELETE_MANY.replace("FOR UPDATE OF s SKIP LOCKED", "FOR UPDATE OF s")
# Arrays cost as much as the rest.
_DELETE_ONE = _DELETE.format("(VALUES ($4::uuid, $5::int, $6::int, $7::uuid))")


def settle(sql: Sql, requests: Sequence[Settle], now: int) -> tuple[Fenced, ...]:
    """Do what the requests ask for, one after the other.

    Those of different bundles are sorted, so that two transactions do not wait for each other.
    """
    bundles_of = [{span.bundle_id for span in _spans(request)} for request in requests]
    order = list(range(len(requests)))
    if sum(map(len, bundles_of)) == len(set().union(*bundles_of)):
        order.sort(key=lambda at: (_source(requests[at]), min(bundles_of[at], default=b"")))
    answers = {at: _settle(sql, requests[at], now) for at in order}
    return tuple(answers[at] for at in range(len(requests)))


def _source(request: Settle) -> Shard:
    return request.acknowledge.shard if isinstance(request, Forward) else request.shard


def _spans(request: Settle) -> tuple[Span, ...]:
    return request.acknowledge.spans if isinstance(request, Forward) else request.spans


def _settle(sql: Sql, request: Settle, now: int) -> Fenced:
    match request:
        case Acknowledge():
            return acknowledge(sql, request, now)
        case Extend():
            return extend(sql, request, now)
        case Release():
            return release(sql, request, now)
        case Forward():
            return forward(sql, request, now)


def is_news(request: Settle) -> bool:
    """Return whether it may make a message deliverable: one that it releases or sends, or the next of a group."""
    if isinstance(request, Acknowledge):
        return request.shard.is_grouped
    return isinstance(request, Forward | Release)


def is_durable(request: Settle) -> bool:
    """Return whether it has to be on the disk when it returns: messages that it takes back would be worked again."""
    return request.blocks if isinstance(request, Extend) else isinstance(request, Acknowledge | Forward)


def is_plain(request: Acknowledge) -> bool:
    """Return whether the request only deletes, and no group continues by that."""
    return not (request.keep or request.moved or request.shard.is_grouped)


def delete_at_once(sql: Sql, request: Acknowledge, now: int, *, in_order: bool = False) -> bool:
    """Delete what the spans name, in one statement. Return False, with nothing deleted, if several are needed.

    In a transaction of several statements it has to take its locks ``in_order``, which may wait.
    """
    spans = [
        (Id(span.bundle_id), span.first, span.count, Id(span.token)) for span in sorted(set(request.spans))
    ]
    if len({span[0] for span in spans}) < len(request.spans) or not spans:
        return False
    is_one = len(spans) == 1
    names: Sequence[object] = spans[0] if is_one else [list(column) for column in zip(*spans, strict=True)]
    shard, is_joined = request.shard, sql.outside is not None
    many = _DELETE_IN_ORDER if in_order or is_joined else _DELETE_MANY
    ((deleted,),) = sql.changed(
        _DELETE_ONE if is_one else many,
        *(shard.queue, shard.time_shard, shard.number),
        *names,
        *(len(spans), bundles.period_of(now), not is_joined),
    )
    return bool(deleted)


def acknowledge(sql: Sql, request: Acknowledge, now: int) -> Fenced:
    """Delete the slices, and the bundles that have none left; with ``keep`` they are the history's."""
    if is_plain(request) and delete_at_once(sql, request, now, in_order=True):
        return Fenced()
    return acknowledge_in_steps(sql, request, now)


def acknowledge_in_steps(sql: Sql, request: Acknowledge, now: int) -> Fenced:
    """Acknowledge in several statements, which wait for locks."""
    row_keys, held = _hold(sql, request.shard, request.spans)
    if row_keys:
        pieces = cut(sql, row_keys, held.slices)
        _finish(sql, row_keys, request, pieces, now)
        _arm(sql, row_keys, pieces)
    return held.fenced


def _finish(sql: Sql, row_keys: RowKeys, request: Acknowledge, pieces: Sequence[Piece], now: int) -> None:
    if request.moved:
        bundles.remember_moved(sql, row_keys, pieces, now)
    if request.keep:
        _KEEP.run(sql, row_keys.shard_key, pieces, now)
    else:
        bundles.delete(sql, row_keys, pieces, now)


def _arm(sql: Sql, row_keys: RowKeys, pieces: Sequence[Piece]) -> None:
    groups.arm(sql, row_keys.shard_key, groups.vacated(pieces))


def _hold(
    sql: Sql, shard: Shard, spans: Sequence[Span], now: int = 0, *, keeps: bool = False
) -> tuple[RowKeys | None, Held]:
    """Lock the slices of the spans; of groups, their groups before."""
    row_keys = row_keys_of(sql, shard)
    if row_keys and shard.is_grouped:
        lock(
            sql,
            row_keys.shard_key,
            groups.of_bundles(sql, row_keys.shard_key, (span.bundle_id for span in spans)),
        )
    queue_key = row_keys.queue_key if row_keys else queues.key_of(sql, shard.queue)
    return row_keys, hold(sql, row_keys, queue_key, spans, now, keeps=keeps)


def extend(sql: Sql, request: Extend, _now: int) -> Fenced:
    """Move the end of the slices' lease; with ``starts`` count deliveries that are not counted yet.

    With ``blocks`` there is none, and messages held behind them in their groups are released.
    """
    row_keys, held = _hold(sql, request.shard, request.spans, keeps=True)
    if row_keys:
        pieces, now = cut(sql, row_keys, held.slices), sql.now()
        (_HIDE if request.shorten else _HIDE_LONGER).run(sql, row_keys.shard_key, pieces, request.until(now))
        if request.starts:
            _START.run(sql, row_keys.shard_key, pieces)
        if request.blocks:
            groups.leave_alone(sql, row_keys.shard_key, pieces, now)
    return held.fenced


def release(sql: Sql, request: Release, _now: int) -> Fenced:
    """Take the token off the slices; without ``started`` their last delivery is not counted."""
    row_keys, held = _hold(sql, request.shard, request.spans, keeps=True)
    if row_keys:
        pieces, now = cut(sql, row_keys, held.slices), sql.now()
        if request.shard.is_grouped:
            groups.put_back(sql, row_keys.shard_key, pieces, now)
        elif not (request.started or request.delay):
            lower_released(sql, row_keys.shard_key, pieces, now)
        uncounted = _RELEASE_UNSTARTED if request.delay else _PUT_BACK
        (_RELEASE if request.started else uncounted).run(sql, row_keys.shard_key, pieces, now + request.delay)
    return held.fenced


def forward(sql: Sql, request: Forward, now: int) -> Fenced:
    """Acknowledge and append, or neither when some message is lost or gone.

    Nothing is changed before it is known that nothing is in the way: there may be no way back in a transaction of the
    application.
    """
    target = request.append.shard
    pinned(sql, target) if request.append.bundles else queues.pinned(sql, target.queue)
    finished = replace(request.acknowledge, moved=True)
    row_keys, held = _hold(sql, finished.shard, finished.spans, now)
    if row_keys is None or held.fenced != Fenced():
        return held.fenced
    pieces = cut(sql, row_keys, held.slices)
    if request.in_place and finished.shard.is_grouped:
        _replace(sql, row_keys, finished, request.append, pieces, now)
        return held.fenced
    _finish(sql, row_keys, finished, pieces, now)
    _arm(sql, row_keys, pieces)
    bundles.append(sql, request.append, now)
    return held.fenced


def _replace(
    sql: Sql, row_keys: RowKeys, request: Acknowledge, append: Append, pieces: Sequence[Piece], now: int
) -> None:
    """Finish messages of groups, and let bundles take their places; messages held behind them are released."""
    places = [groups.place_of(span, pieces) for span in request.spans]
    groups.put_back(sql, row_keys.shard_key, pieces, now)
    _finish(sql, row_keys, request, pieces, now)
    bundles.append(sql, append, now, places)
    groups.arm(sql, row_keys.shard_key, groups.vacated(pieces))
