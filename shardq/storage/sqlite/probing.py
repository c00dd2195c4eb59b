"""The offers of shards, without a body being read."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import msgspec

from shardq.base.shard import Shard
from shardq.storage.requests import Probe
from shardq.storage.sqlite.bundles import BEHIND

__all__ = ["probe"]

# Two seeks per priority and shard: the first slice that is due, the first that is not. None that is behind others.
_PROBE = f"""
    SELECT asked.key, first.priority, first.due, (
        SELECT min((
            SELECT min(due) FROM [slice] INDEXED BY [slice_by_due]
            WHERE shard_key = [shard].shard_key AND priority = level.column1 AND due > ?2 AND due < {BEHIND}
            AND processed_at IS NULL
        )) FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)) AS level
    )
    FROM json_each(?1) AS asked
    JOIN [shard] ON queue = asked.value ->> 0 AND time_shard = asked.value ->> 1 AND number = asked.value ->> 2
    LEFT JOIN [slice] AS first ON first.slice_key = (
        SELECT slice_key FROM [slice] INDEXED BY [slice_by_due]
        WHERE shard_key = [shard].shard_key AND priority IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9) AND due <= ?2
        AND processed_at IS NULL
        ORDER BY priority, due, bundle_id, first LIMIT 1
    )
"""


def probe(sql: sqlite3.Connection, shards: Sequence[Shard], now: int) -> tuple[Probe, ...]:
    """Return what each of the shards has to offer, in their order."""
    asked = msgspec.json.encode([(shard.queue, shard.time_shard, shard.number) for shard in shards]).decode()
    found = {row[0]: row[1:] for row in sql.execute(_PROBE, (asked, now))}
    return tuple(Probe(shard, *found.get(index, ())) for index, shard in enumerate(shards))
