"""Taking slices under a claim's token.

A claim is one statement, which takes the next messages if all of them can be had. Else it has taken nothing, and is
tried again. If that does not help it waits for the other claims of the shard, and leaves out rows that others have
locked, such as an application whose transaction is open.
"""

from __future__ import annotations

import random
import time
from contextlib import suppress
from math import ceil
from typing import Any

import msgspec
from msgspec.structs import replace

from shardq.base.shard import Shard
from shardq.errors import ShardqError
from shardq.storage.postgresql import bundles, groups
from shardq.storage.postgresql.connections import Id, Row, Sql
from shardq.storage.postgresql.locks import BRIEF, claims_number, lock_claims
from shardq.storage.postgresql.read_cursors import HOME_READ, LOW, WATERMARKS, LowWatermarks, Read, raise_to
from shardq.storage.postgresql.rows import BUNDLE, CHOSEN, NOT_BLOCKED, STILL_BEHIND, bundle_of
from shardq.storage.postgresql.session import Session
from shardq.storage.requests import Bundle, Claim, Claimed, ClaimedSlice
from shardq.storage.writing import after_a_write

__all__ = ["Claims", "Taken"]

_FEW_ROWS = 16  # that are read, as bundles may have many messages each

_TAIL_COLUMNS = """
    shard_key, bundle_id, first, count, sent_count, priority, due, deliveries, unstarted, token, processed_at,
    sent_due, enqueued_at, expires_at, message_group, place, data
"""
_TAIL = """
    s.shard_key, s.bundle_id, s.first + a.taken, a.count - a.taken, s.sent_count, s.priority, a.due, a.deliveries,
    a.unstarted, a.token, s.processed_at, s.sent_due, s.enqueued_at, s.expires_at, s.message_group, s.place, s.data
"""
_SET = """
    count = a.taken, due = {0}, token = {1}, deliveries = s.deliveries + CASE WHEN {2} THEN 1 ELSE 0 END,
    unstarted = NOT {2}
"""
_NEXT = "s.due, s.bundle_id, s.first"
_ROW = f"s.first, s.count, s.deliveries + s.unstarted::int, {BUNDLE}"
# The next rows that hold the wanted messages, if all of them are as they were read, and none is locked. Slices that
# the token holds are only prolonged. A claim need not wait for the disk.
_CLAIM = f"""
    WITH gate AS MATERIALIZED (
        SELECT set_config('synchronous_commit', 'off', true), set_config('lock_timeout', '{BRIEF}', true),
            pg_try_advisory_xact_lock_shared($4) AS is_open,
            pg_snapshot_xmin(snapshot)::text::bigint AS oldest, pg_snapshot_xmax(snapshot)::text::bigint AS newest
        FROM pg_current_snapshot() AS snapshot
    ),
    row_keys AS MATERIALIZED ({HOME_READ}),
    held AS (
        UPDATE @slice s SET due = $6 + {STILL_BEHIND} FROM row_keys, gate
        WHERE gate.is_open AND s.token = $5 AND s.shard_key = row_keys.shard_key AND s.processed_at IS NULL
        AND {NOT_BLOCKED} AND $10
        RETURNING s.priority, s.sent_due, s.bundle_id, {_ROW}
    ),
    seen AS MATERIALIZED (
        SELECT x.* FROM gate CROSS JOIN row_keys CROSS JOIN generate_series(0, 9) AS p (priority) CROSS JOIN LATERAL (
            SELECT s.shard_key, s.priority, s.due, s.bundle_id, s.first, s.count FROM @slice s
            WHERE gate.is_open AND s.shard_key = row_keys.shard_key AND s.priority = p.priority
            AND s.due >= {LOW.format("row_keys", "$7")} AND s.due <= $7 AND s.processed_at IS NULL
            ORDER BY {_NEXT} LIMIT $9
        ) AS x LIMIT $9
    ),
    wanted AS MATERIALIZED (
        SELECT *, least(count, count - upto + $8)::int AS taken FROM (
            SELECT *, sum(count) OVER (ORDER BY priority, due, bundle_id, first) AS upto FROM seen
        ) AS summed WHERE upto - count < $8 AND NOT EXISTS (SELECT FROM held)
    ),
    locked AS MATERIALIZED (
        SELECT w.*, s.deliveries, s.unstarted, s.token
        FROM wanted w JOIN @slice s ON s.shard_key = w.shard_key AND s.bundle_id = w.bundle_id AND s.first = w.first
        WHERE s.due = w.due AND s.count = w.count AND s.processed_at IS NULL FOR NO KEY UPDATE OF s SKIP LOCKED
    ),
    free AS MATERIALIZED (
        SELECT * FROM locked WHERE (SELECT count(*) FROM locked) = (SELECT count(*) FROM wanted)
    ),
    tail AS (
        INSERT INTO @slice ({_TAIL_COLUMNS}) SELECT {_TAIL} FROM free a
        JOIN @slice s ON s.shard_key = a.shard_key AND s.bundle_id = a.bundle_id AND s.first = a.first
        WHERE a.taken < a.count
    ),
    taken AS (
        UPDATE @slice s SET {_SET.format("$6", "$5", "$11")} FROM free a
        WHERE s.shard_key = a.shard_key AND s.bundle_id = a.bundle_id AND s.first = a.first
        RETURNING a.priority, a.due, a.bundle_id, {_ROW}
    )
    SELECT
        gate.is_open, row_keys.shard_key, row_keys.low, row_keys.late, row_keys.step, gate.oldest, gate.newest,
        (SELECT count(*) FROM seen), (SELECT count(*) FROM wanted), r.*
    FROM gate LEFT JOIN row_keys ON true
    LEFT JOIN (SELECT * FROM held UNION ALL SELECT * FROM taken) AS r ON true
"""

# The same in steps, where the other claims of the shard have ended. The shard comes with the transactions that had not.
_SHARD = HOME_READ.replace(
    "m.step FROM",
    "m.step, pg_snapshot_xmin(pg_current_snapshot())::text::bigint, "
    "pg_snapshot_xmax(pg_current_snapshot())::text::bigint FROM",
)
_PROLONG = f"""
    UPDATE @slice s SET due = $3 + {STILL_BEHIND}
    WHERE s.token = $2 AND s.shard_key = $1 AND s.processed_at IS NULL AND {NOT_BLOCKED}
    RETURNING s.place, s.priority, s.sent_due, {_ROW}
"""
_TAKE = f"""
    WITH free AS MATERIALIZED (
        SELECT x.* FROM @shard h {WATERMARKS.format("h")}
        CROSS JOIN generate_series(0, 9) AS p (priority) CROSS JOIN LATERAL (
            SELECT s.shard_key, s.priority, s.due, s.bundle_id, s.first, s.count, s.deliveries, s.unstarted, s.token
            FROM @slice s
            WHERE s.shard_key = $1 AND s.priority = p.priority AND s.due >= {LOW.format("m", "$2")} AND s.due <= $2
            AND s.processed_at IS NULL
            ORDER BY {_NEXT} LIMIT $5 FOR NO KEY UPDATE OF s SKIP LOCKED
        ) AS x WHERE h.shard_key = $1 LIMIT $5
    ),
    taken AS MATERIALIZED (
        SELECT *, least(count, count - upto + $4)::int AS taken FROM (
            SELECT *, sum(count) OVER (ORDER BY priority, due, bundle_id, first) AS upto FROM free
        ) AS summed WHERE upto - count < $4
    ),
    tail AS (
        INSERT INTO @slice ({_TAIL_COLUMNS}) SELECT {_TAIL} FROM taken a JOIN @slice s ON {CHOSEN}
        WHERE a.taken < a.count
    )
    UPDATE @slice s SET {_SET.format("$3", "$6", "$7")} FROM taken a WHERE {CHOSEN}
    RETURNING a.priority, a.due, a.bundle_id, {_ROW}, (SELECT count(*) FROM free)
"""
_STATUS, _COLUMNS = 9, 6  # before what is taken, and there before the columns of the bundle
_KEPT = 8  # bundles whose data is kept
_KEPT_BYTES = 262_144  # of each at most: a producer makes none with more by default
_PAUSES = (0.0005, 0.001, 0.002, 0.004)  # seconds between attempts


class Taken(msgspec.Struct, frozen=True):
    """The slices that a claim takes, in the order of delivery; the data of long bundles is still to be read."""

    shard_key: int
    rows: tuple[Row, ...]
    until: int
    contended: bool = False  # others were in the way of what it could have taken

    @property
    def long(self) -> list[bytes]:
        """The bundles whose data is not here."""
        return [row[_COLUMNS] for row in self.rows if row[_COLUMNS + 5] is None]

    def claimed(self, data: dict[bytes, bytes]) -> Claimed:
        """Make the answer; slices whose data is missing were purged since, and are left out."""
        slices = []
        for _, _, _, first, count, deliveries, *columns in self.rows:
            own: Any = columns[5]
            body = data.get(columns[0]) if own is None else own
            if body is not None:
                slices.append(ClaimedSlice(bundle_of(columns, body), first, count, deliveries))
        return Claimed(tuple(slices), self.until, contended=self.contended and not slices)


class Claims:
    """Makes the claims of one client."""

    def __init__(self) -> None:
        self._of_a_row = 1.0  # how many messages the rows had that were taken last
        self._watermarks = LowWatermarks()
        self._cut: dict[Shard, Bundle] = {}  # those whose rest is likely to be claimed next

    def take(self, session: Session, request: Claim) -> Taken:
        """Hide up to the limit of deliverable messages, or again what the token holds."""
        for pause in _PAUSES if not request.shard.is_grouped else ():
            rows: list[Row] = []
            with after_a_write(rows.__len__):
                taken = self._take_at_once(session, request, rows)
            if taken is not None:
                return taken
            time.sleep(random.uniform(0, pause))
        taken, read = session.write(_take_alone, request, durable=False)
        self._raise(session, request.shard, read)
        return taken

    def read(self, session: Session, shard: Shard, taken: Taken) -> Claimed:
        """Return the slices with the data of all; those that were purged since are left out.

        The data of a bundle whose rest is left is kept for the next claim, which would read all of it again.
        """
        data: dict[bytes, bytes] = {}
        cut, long = self._cut.pop(shard, None), set(taken.long)
        if cut is not None and cut.id in long:
            data[cut.id] = cut.data
            long.remove(cut.id)
        if long:
            data |= session.read(bundles.data_of, taken.shard_key, long)
        claimed = taken.claimed(data)
        if not claimed.slices:
            return claimed
        last = claimed.slices[-1]
        if last.first + last.count < last.bundle.count and len(last.bundle.data) <= _KEPT_BYTES:
            if len(self._cut) >= _KEPT:
                self._cut.clear()
            self._cut[shard] = last.bundle
        return claimed

    def _take_at_once(self, session: Session, request: Claim, rows: list[Row]) -> Taken | None:
        """Return what is taken without waiting for anybody; None, and nothing was taken, if others are in the way.

        The ``rows`` of it are added to those that are given.
        """
        shard_key, until, wanted = 0, 0, request.limit
        most = min(wanted, max(_FEW_ROWS, ceil(1.25 * wanted / self._of_a_row)))
        while wanted > 0:
            found = session.statement(_find_and_take, request, wanted, most, not rows)
            if found is None:
                if rows:  # what is there is answered
                    break
                return None
            shard_key, until, seen, more, read = found
            rows += more
            wanted -= sum([row[4] for row in more])
            if wanted <= 0 and read is not None:
                read = replace(read, taken=more[-1][:2])
            if not more or seen < most or wanted <= 0:  # there were no more
                self._raise(session, request.shard, read)
                break
            most = min(wanted, 4 * most)
        if rows:
            self._of_a_row = (request.limit - wanted) / len(rows)
        return Taken(shard_key, tuple(rows), until)

    def _raise(self, session: Session, shard: Shard, read: Read | None) -> None:
        if read is not None and (moments := self._watermarks.raised(shard, read)) is not None:
            with suppress(ShardqError):  # what was taken is taken all the same
                session.statement(raise_to, read, moments)


def _find_and_take(
    sql: Sql, request: Claim, wanted: int, most: int, is_first: bool, now: int
) -> tuple[int, int, int, list[Row], Read | None] | None:
    """Return the shard's key, the end of the lease, how many rows were seen, those that were taken, and what was read.

    None if others are in the way.
    """
    shard, until = request.shard, now + request.lease
    found = sql.all(
        _CLAIM,
        *(shard.queue, shard.time_shard, shard.number),
        claims_number(sql, shard),
        Id(request.token),
        until,
        now,
        wanted,
        most,
        is_first,
        request.started,
    )
    is_open, shard_key, low, late, step, oldest, newest, seen, number, *first = found[0]
    if shard_key is None:
        return (0, until, 0, [], None) if is_open else None
    read = Read(shard_key, low, late, step, oldest, newest, now)
    if first[0] is None:
        return (shard_key, until, seen, [], read) if is_open and not number else None
    rows = sorted([row[_STATUS:] for row in found], key=_place)
    return (shard_key, until, seen, rows, read) if number else (shard_key, until, 0, rows, None)


def _place(row: Row) -> Row:
    return row[:4]


def _take_alone(sql: Sql, request: Claim, now: int) -> tuple[Taken, Read | None]:
    """Return what is taken, and in a shard of groups what was read."""
    until, shard = now + request.lease, request.shard
    row = sql.one(_SHARD, shard.queue, shard.time_shard, shard.number)
    if row is None:
        return Taken(0, (), until), None
    shard_key, _, low, late, step, oldest, newest = row
    lock_claims(sql, shard)
    held = sql.all(_PROLONG, shard_key, Id(request.token), until)
    if held:
        held.sort(key=lambda row: (row[0], row[1], row[2], row[_COLUMNS], row[3]))
        return Taken(shard_key, tuple(held), until), None
    if not shard.is_grouped:
        return Taken(shard_key, tuple(_take(sql, shard_key, request, now)), until), None
    rows, found = groups.take(sql, shard_key, request, now)
    read = Read(shard_key, low, late, step, oldest, newest, now, found.begin) if found.is_read else None
    return Taken(shard_key, tuple(rows), until, found.contended), read


def _take(sql: Sql, shard_key: int, request: Claim, now: int) -> list[Row]:
    rows: list[Row] = []
    wanted, most = request.limit, min(request.limit, _FEW_ROWS)
    while wanted > 0:
        more = sql.all(
            _TAKE, shard_key, now, now + request.lease, wanted, most, Id(request.token), request.started
        )
        if not more:
            break
        more.sort(key=_place)
        rows += [row[:-1] for row in more]
        wanted -= sum([row[4] for row in more])
        if more[0][-1] < most:  # there were no more
            break
        most = min(wanted, 4 * most)
    return rows
