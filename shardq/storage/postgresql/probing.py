"""The offers of shards, without a body being read."""

from __future__ import annotations

from collections.abc import Sequence

from shardq.base.shard import GROUP_TIME_SHARD, Shard
from shardq.storage.postgresql.connections import Sql
from shardq.storage.postgresql.directory import HOMES
from shardq.storage.postgresql.read_cursors import HAS_ITS_TURN, LOW, WATERMARKS
from shardq.storage.postgresql.rows import BEHIND, HEADS, TURN
from shardq.storage.requests import Probe

__all__ = ["probe"]

# Two seeks per priority and shard: the first slice that is due, the first that is not. None that is behind others. Of
# groups, the one that is due first of those whose turns are next.
_PROBE = f"""
    SELECT a.n, first.priority, first.due, ahead.due FROM {HOMES} {WATERMARKS.format("h")}
    LEFT JOIN LATERAL (
        SELECT p.priority, x.due FROM generate_series(0, 9) AS p (priority) CROSS JOIN LATERAL (
            (
                SELECT s.due FROM @slice s
                WHERE s.shard_key = h.shard_key AND s.priority = p.priority AND s.processed_at IS NULL
                AND s.due >= {LOW.format("m", "$4")} AND s.due <= $4 AND h.time_shard <> {GROUP_TIME_SHARD}
                ORDER BY s.due LIMIT 1
            ) UNION ALL (
                SELECT min(y.due) FROM (
                    SELECT s.due FROM @slice s
                    WHERE s.shard_key = h.shard_key AND s.priority = p.priority
                    AND {HAS_ITS_TURN.format("m", "$4")} AND h.time_shard = {GROUP_TIME_SHARD}
                    ORDER BY {TURN} LIMIT {HEADS}
                ) AS y HAVING min(y.due) IS NOT NULL
            )
        ) AS x ORDER BY p.priority LIMIT 1
    ) AS first ON true
    LEFT JOIN LATERAL (
        SELECT min(x.due) AS due FROM generate_series(0, 9) AS p (priority) CROSS JOIN LATERAL (
            SELECT s.due FROM @slice s
            WHERE s.shard_key = h.shard_key AND s.priority = p.priority AND s.due > $4 AND s.due < {BEHIND}
            AND s.processed_at IS NULL AND NOT $5
            ORDER BY s.due LIMIT 1
        ) AS x
    ) AS ahead ON true
"""


def probe(sql: Sql, shards: Sequence[Shard], now: int, glance: bool) -> tuple[Probe, ...]:
    """Return the offer of each of the shards, in their order; at a glance without messages that are due later.

    The second seek crosses the ends of old leases for as long as the server keeps their dead entries.
    """
    if not shards:
        return ()
    queues, time_shards, numbers = zip(
        *((each.queue, each.time_shard, each.number) for each in shards), strict=True
    )
    rows = sql.all(_PROBE, list(queues), list(time_shards), list(numbers), now, glance)
    found = {row[0]: row[1:] for row in rows}
    return tuple(Probe(shard, *found.get(index, ())) for index, shard in enumerate(shards, 1))
