"""What waits in the queue of a stream, and what was acked, for the progress of its query."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from shardq.base.clock import microseconds, to_datetime
from shardq.core.context.queue_context import QueueContext
from shardq.core.counts import counts_of, total

__all__ = ["Backlog"]


class Backlog:
    """Counts a queue now and then: Spark asks at every trigger, and a count costs a request for each shard."""

    def __init__(self, context: QueueContext) -> None:
        self._context = context
        self._before = context.counters.read()
        self._counted_at: int | None = None
        self._report: dict[str, Any] = {}

    def report(self, every: float) -> dict[str, Any]:
        """Messages by state, as they were at most so many seconds ago; what the stream has acked and lost by now."""
        now = self._context.store.now()
        if self._counted_at is None or now - self._counted_at >= microseconds(every):
            self._report, self._counted_at = self._count(now), now
        return self._report | self._done()

    def _done(self) -> dict[str, int]:
        """Since the stream began. The process that plans a stream has no other."""
        before, now = self._before, self._context.counters.read()
        return {"acked": now.acked - before.acked, "leaseLost": now.lease_lost - before.lease_lost}

    def _count(self, now: int) -> dict[str, Any]:
        context = self._context
        shards = context.retry(context.store.shards, context.name)
        counts = total([counts_of(context.retry(context.store.count, shard)) for shard in shards])
        return {
            "ready": counts.ready,
            "delayed": counts.delayed,
            "inFlight": counts.in_flight,
            "readySince": _text(counts.ready_since),
            "oldest": _text(counts.oldest),
            "countedAt": to_datetime(now).isoformat(),
        }


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
