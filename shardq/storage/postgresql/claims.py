"""Taking slices under a claim's token.

Claims of a shard go one after the other. What others have locked, such as an application whose transaction is open,
they leave out.
"""

from __future__ import annotations

from typing import Any

import msgspec

from shardq.storage.postgresql import bundles, group_claims
from shardq.storage.postgresql.connections import Id, Row, Sql
from shardq.storage.postgresql.directory import home_of
from shardq.storage.postgresql.locks import lock_claims
from shardq.storage.postgresql.rows import BUNDLE, CHOSEN, NOT_BLOCKED, STILL_BEHIND, bundle_of
from shardq.storage.requests import Claim, Claimed, ClaimedSlice

__all__ = ["Taken", "read", "take"]

_FEW_ROWS = 64  # that are locked at a time: bundles may have many messages each

# What the token holds: the claim is repeated.
_PROLONG = f"""
    UPDATE @slice s SET due = $3 + {STILL_BEHIND}
    WHERE s.token = $2 AND s.shard_key = $1 AND s.processed_at IS NULL AND {NOT_BLOCKED}
    RETURNING s.place, s.priority, s.sent_due, s.first, s.count, s.deliveries + s.unstarted::int, {BUNDLE}
"""
# The first rows that hold as many messages as are wanted. Of the last one the first messages are taken; the rest,
# ``tail``, stays as it was.
_TAKE = f"""
    WITH free AS MATERIALIZED (
        SELECT x.* FROM generate_series(0, 9) AS p (priority) CROSS JOIN LATERAL (
            SELECT s.priority, s.due, s.bundle_id, s.first, s.count, s.deliveries, s.unstarted, s.token FROM @slice s
            WHERE s.shard_key = $1 AND s.priority = p.priority AND s.due <= $2 AND s.processed_at IS NULL
            ORDER BY s.due, s.bundle_id, s.first LIMIT $5 FOR UPDATE SKIP LOCKED
        ) AS x LIMIT $5
    ),
    summed AS (
        SELECT *, sum(count) OVER (ORDER BY priority, due, bundle_id, first) AS upto FROM free
    ),
    taken AS MATERIALIZED (
        SELECT *, least(count, count - upto + $4)::int AS taken FROM summed WHERE upto - count < $4
    ),
    tail AS (
        INSERT INTO @slice (
            shard_key, bundle_id, first, count, sent_count, priority, due, deliveries, unstarted, token, processed_at,
            sent_due, enqueued_at, expires_at, message_group, place, data
        )
        SELECT
            s.shard_key, s.bundle_id, s.first + a.taken, a.count - a.taken, s.sent_count, s.priority, a.due,
            a.deliveries, a.unstarted, a.token, s.processed_at, s.sent_due, s.enqueued_at, s.expires_at,
            s.message_group, s.place, s.data
        FROM taken a JOIN @slice s ON {CHOSEN} WHERE a.taken < a.count
    )
    UPDATE @slice s SET
        count = a.taken, due = $3, token = $6, deliveries = s.deliveries + CASE WHEN $7 THEN 1 ELSE 0 END,
        unstarted = NOT $7
    FROM taken a WHERE {CHOSEN}
    RETURNING a.priority, a.due, a.bundle_id, s.first, s.count, s.deliveries + s.unstarted::int, {BUNDLE},
        (SELECT count(*) FROM free)
"""
_COLUMNS = 6  # before those of the bundle


class Taken(msgspec.Struct, frozen=True):
    """What a claim takes, in the order of delivery; the data of long bundles is still to be read."""

    shard_key: int
    rows: tuple[Row, ...]
    until: int
    contended: bool = False  # others were in the way of what it could have taken

    @property
    def long(self) -> list[bytes]:
        """The bundles whose data is not here."""
        return [row[_COLUMNS] for row in self.rows if row[_COLUMNS + 5] is None]

    def claimed(self, data: dict[bytes, bytes]) -> Claimed:
        """The answer; slices whose data is missing were purged since, and are left out."""
        slices = []
        for _, _, _, first, count, deliveries, *columns in self.rows:
            own: Any = columns[5]
            body = data.get(columns[0]) if own is None else own
            if body is not None:
                slices.append(ClaimedSlice(bundle_of(columns, body), first, count, deliveries))
        return Claimed(tuple(slices), self.until, contended=self.contended and not slices)


def take(sql: Sql, request: Claim, now: int) -> Taken:
    """Hide up to the limit of deliverable messages, or again what the token holds."""
    until = now + request.lease
    home = home_of(sql, request.shard)
    if home is None:
        return Taken(0, (), until)
    lock_claims(sql, home.shard_key)
    token = Id(request.token)
    held = sql.all(_PROLONG, home.shard_key, token, until)
    if held:
        held.sort(key=lambda row: (row[0], row[1], row[2], row[_COLUMNS], row[3]))
        return Taken(home.shard_key, tuple(held), until)
    if request.shard.is_grouped:
        rows, contended = group_claims.take(sql, home.shard_key, request, now)
        return Taken(home.shard_key, tuple(rows), until, contended)
    return Taken(home.shard_key, tuple(_take(sql, home.shard_key, request, now)), until)


def _take(sql: Sql, shard_key: int, request: Claim, now: int) -> list[Row]:
    rows: list[Row] = []
    wanted, most = request.limit, min(request.limit, _FEW_ROWS)
    while wanted > 0:
        more = sql.all(
            _TAKE, shard_key, now, now + request.lease, wanted, most, Id(request.token), request.started
        )
        if not more:
            break
        more.sort(key=lambda row: row[:4])
        rows += [row[:-1] for row in more]
        wanted -= sum([row[4] for row in more])
        if more[0][-1] < most:  # there were no more
            break
        most = min(wanted, 4 * most)
    return rows


def read(sql: Sql, taken: Taken) -> Claimed:
    """Return the slices with the data of all; those that were purged since are left out."""
    return taken.claimed(bundles.data_of(sql, taken.shard_key, taken.long))
