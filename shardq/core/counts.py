"""How many messages a queue has, by state."""

from __future__ import annotations

from datetime import datetime

import msgspec

from shardq.base.clock import to_datetime
from shardq.base.shard import Shard
from shardq.core.context.queue_context import QueueContext
from shardq.storage.requests import ShardCounts

__all__ = ["QueueCounts", "ShardState", "counts_of", "shard_states", "total"]


class QueueCounts(msgspec.Struct, frozen=True):
    """Messages of a queue by state.

    ``oldest`` is when the oldest message that is not processed was sent. ``ready_since`` is since when the message
    that a consumer could have received first is due. It leaves out messages that wait in a group behind one that is
    held or retried later. Each is None when there is no such message. ``bytes`` are those of the ready and delayed
    messages, bodies and headers, if the queue has ``max_bytes``; else they are not counted, and None.
    """

    ready: int
    delayed: int
    in_flight: int
    processed: int
    oldest: datetime | None
    ready_since: datetime | None = None
    bytes: int | None = None

    @property
    def backlog(self) -> int:
        """Return the number of messages that are not processed: ready, delayed or in flight."""
        return self.ready + self.delayed + self.in_flight

    def late_seconds(self, now: datetime) -> float:
        """Return for how long the first ready message has been due; 0 when there is none.

        ``now`` is the time by the store's clock, which ``client.now()`` returns.
        """
        return 0.0 if self.ready_since is None else max(0.0, (now - self.ready_since).total_seconds())


class ShardState(msgspec.Struct, frozen=True):
    """One shard of a queue, and its messages by state."""

    shard: Shard
    counts: QueueCounts


def counts_of(counts: ShardCounts) -> QueueCounts:
    """Convert the counts of a shard to those that users see."""
    oldest, since = (
        None if moment is None else to_datetime(moment) for moment in (counts.oldest, counts.ready_since)
    )
    states = (counts.ready, counts.delayed, counts.in_flight, counts.processed)
    return QueueCounts(*states, oldest, since, counts.bytes)


def total(parts: list[QueueCounts]) -> QueueCounts:
    """Add up the counts of several shards."""
    return QueueCounts(
        sum(part.ready for part in parts),
        sum(part.delayed for part in parts),
        sum(part.in_flight for part in parts),
        sum(part.processed for part in parts),
        min((part.oldest for part in parts if part.oldest is not None), default=None),
        min((part.ready_since for part in parts if part.ready_since is not None), default=None),
        sum(sizes) if (sizes := [part.bytes for part in parts if part.bytes is not None]) else None,
    )


def shard_states(context: QueueContext) -> tuple[ShardState, ...]:
    """Count the messages by state in each shard that is in use. Raises QueueNotFound."""
    sizes = context.live.current().max_bytes is not None
    shards = context.retry(context.store.shards, context.name)
    counts = (context.retry(context.store.count, shard, sizes=sizes) for shard in shards)
    return tuple(ShardState(shard, counts_of(each)) for shard, each in zip(shards, counts, strict=True))
