"""Telling every client of a shard that something lies where they may have read already."""

from __future__ import annotations

from collections.abc import Mapping

from shardq.sharding.shard import Shard
from shardq.storage.cassandra import floors
from shardq.storage.cassandra.change import Change, attempts
from shardq.storage.cassandra.reading import WideRow
from shardq.storage.cassandra.rows import Place
from shardq.storage.cassandra.session import Session

__all__ = ["lower"]


def lower(session: Session, shard: Shard, hidden: Mapping[int, Place], alarm: int | None = None) -> None:
    """Lower the floors to these places by priority, and to this alarm; raises StoreUnavailable."""
    row = WideRow(session, str(shard))
    for _ in attempts(shard):
        seen = row.control()
        change = Change(session, shard)
        change.set_control(floors.lowered(seen.control, hidden, alarm), seen.seen)
        if change.apply():
            return
