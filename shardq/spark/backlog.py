"""What waits in the queue of a stream, for the progress of its query."""

from __future__ import annotations

from typing import Any

from shardq.clock import microseconds, to_datetime
from shardq.context.queue_context import QueueContext
from shardq.counts import counts_of, total

__all__ = ["Backlog"]


class Backlog:
    """Counts a queue now and then: Spark asks at every trigger, and a count costs a request for each shard."""

    def __init__(self, context: QueueContext) -> None:
        self._context = context
        self._counted_at: int | None = None
        self._report: dict[str, Any] = {}

    def report(self, every: float) -> dict[str, Any]:
        """Messages by state, as they were at most so many seconds ago."""
        now = self._context.store.now()
        if self._counted_at is None or now - self._counted_at >= microseconds(every):
            self._report, self._counted_at = self._count(now), now
        return self._report

    def _count(self, now: int) -> dict[str, Any]:
        context = self._context
        shards = context.retry(context.store.shards, context.name)
        counts = total([counts_of(context.retry(context.store.count, shard)) for shard in shards])
        since = counts.ready_since
        return {
            "ready": counts.ready,
            "delayed": counts.delayed,
            "inFlight": counts.in_flight,
            "readySince": None if since is None else since.isoformat(),
            "countedAt": to_datetime(now).isoformat(),
        }
