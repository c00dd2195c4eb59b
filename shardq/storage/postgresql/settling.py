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
from shardq.storage.postgresql.locks import lock
from shardq.storage.postgresql.read_cursors import LATE, lower_released
from shardq.storage.postgresql.rows import STILL_BEHIND, UNDELIVERED, Change, Piece
from shardq.storage.postgresql.slicing import Held, cut, hold
from shardq.storage.requests import Acknowledge, Append, Extend, Fenced, Forward, Release, Span

__all__ = [
    "acknowledge",
    "delete_whole",
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
# Bundles that were not cut, as most are, if all of the spans hold one whole, and nobody has locked it. A claim may
# hold many under its token, so they are found by their keys, and the token is compared as no index can.
_DELETE_WHOLE = f"""
    WITH row_keys AS MATERIALIZED ({HOME}),
    held AS MATERIALIZED (
        SELECT x.* FROM row_keys CROSS JOIN unnest($4::uuid[], $5::int[], $6::uuid[]) AS a (bundle_id, count, token)
        CROSS JOIN LATERAL (
            SELECT s.shard_key, s.bundle_id, s.data IS NULL AS is_long FROM @slice s
            WHERE s.shard_key = row_keys.shard_key AND s.bundle_id = a.bundle_id AND s.first = 0 AND s.count = a.count
            AND s.token IS NOT DISTINCT FROM a.token AND s.sent_count = a.count AND s.processed_at IS NULL
            FOR UPDATE OF s SKIP LOCKED
        ) AS x
    ),
    gone AS (
        DELETE FROM @slice s USING held
        WHERE (SELECT count(*) FROM held) = $7 AND s.shard_key = held.shard_key AND s.bundle_id = held.bundle_id
        AND s.first = 0
        RETURNING s.shard_key, s.bundle_id, held.is_long
    ),
    data AS (
        DELETE FROM @bundle_data d USING gone
        WHERE gone.is_long AND d.shard_key = gone.shard_key AND d.bundle_id = gone.bundle_id
    ),
    known AS (
        INSERT INTO @finished (period, queue_key, bundle_id)
        SELECT $8, row_keys.queue_key, gone.bundle_id FROM row_keys, gone
    )
    SELECT count(*) FROM gone
"""


# The same of one bundle, without arrays.
_DELETE_ONE = f"""
    WITH held AS MATERIALIZED (
        SELECT s.shard_key, row_keys.queue_key, s.bundle_id
        FROM ({HOME}) AS row_keys JOIN @slice s ON s.shard_key = row_keys.shard_key
        WHERE s.bundle_id = $4 AND s.first = 0 AND s.count = $5 AND s.token IS NOT DISTINCT FROM $6
        AND s.sent_count = $5 AND s.processed_at IS NULL
        FOR UPDATE OF s SKIP LOCKED
    ),
    gone AS (
        DELETE FROM @slice s USING held
        WHERE s.shard_key = held.shard_key AND s.bundle_id = held.bundle_id AND s.first = 0
        RETURNING s.shard_key, held.queue_key, s.bundle_id, s.data IS NULL AS is_long
    ),
    data AS (
        DELETE FROM @bundle_data d USING gone
        WHERE gone.is_long AND d.shard_key = gone.shard_key AND d.bundle_id = gone.bundle_id
    ),
    known AS (INSERT INTO @finished (period, queue_key, bundle_id) SELECT $7, gone.queue_key, gone.bundle_id FROM gone)
    SELECT count(*) FROM gone
"""


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


def delete_whole(sql: Sql, request: Acknowledge, now: int) -> bool:
    """Delete the bundles that the spans hold whole, in one statement; False, and nothing deleted, if some do not."""
    whole = sorted({(span.bundle_id, span.count, span.token) for span in request.spans if span.first == 0})
    if len(whole) < len(request.spans) or not whole:
        return False
    shard = request.shard
    if len(whole) == 1:
        bundle_id, count, token = whole[0]
        one = (Id(bundle_id), count, Id(token), bundles.period_of(now))
        ((gone,),) = sql.changed(_DELETE_ONE, shard.queue, shard.time_shard, shard.number, *one)
        return bool(gone)
    ids, counts, tokens = zip(*whole, strict=True)
    ((gone,),) = sql.changed(
        _DELETE_WHOLE,
        *(shard.queue, shard.time_shard, shard.number),
        [Id(each) for each in ids],
        list(counts),
        [Id(each) for each in tokens],
        len(whole),
        bundles.period_of(now),
    )
    return bool(gone)


def acknowledge(sql: Sql, request: Acknowledge, now: int) -> Fenced:
    """Delete the slices, and the bundles that have none left; with ``keep`` they are the history's."""
    if is_plain(request) and delete_whole(sql, request, now):
        return Fenced()
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


def _hold(sql: Sql, shard: Shard, spans: Sequence[Span], now: int = 0) -> tuple[RowKeys | None, Held]:
    """Lock the slices of the spans; of groups, their groups before."""
    row_keys = row_keys_of(sql, shard)
    if row_keys and shard.is_grouped:
        lock(
            sql,
            row_keys.shard_key,
            groups.of_bundles(sql, row_keys.shard_key, (span.bundle_id for span in spans)),
        )
    queue_key = row_keys.queue_key if row_keys else queues.key_of(sql, shard.queue)
    return row_keys, hold(sql, row_keys, queue_key, spans, now)


def extend(sql: Sql, request: Extend, _now: int) -> Fenced:
    """Move the end of the slices' lease; with ``starts`` count deliveries that are not counted yet.

    With ``blocks`` there is none, and messages held behind them in their groups are released.
    """
    row_keys, held = _hold(sql, request.shard, request.spans)
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
    row_keys, held = _hold(sql, request.shard, request.spans)
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
