"""How much waits in the queues of a pipeline, and how fast that changes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime

import msgspec

from shardq.client import Client
from shardq.core.settling.dead_letters import dead_letter_name
from shardq.pipelines.pipeline import Pipeline, check_pipeline
from shardq.queue import Queue
from shardq.settings import check_number

__all__ = ["QueueDepth", "depths_of", "with_rates"]

LONGEST_INTERVAL = 3_600.0


class QueueDepth(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of one queue of a pipeline at one moment.

    ``dead`` are those in its dead-letter queue. ``per_second`` is by how much what is not done yet, ready, delayed or
    in flight, has grown each second; below 0: it shrinks. ``paused`` tells that its deliveries are.

    >>> QueueDepth(queue="raw", ready=7, delayed=0, in_flight=2).waiting
    9
    """

    queue: str
    ready: int
    delayed: int
    in_flight: int
    dead: int = 0
    oldest: datetime | None = None
    paused: bool = False
    per_second: float | None = None

    @property
    def waiting(self) -> int:
        """All that is not done yet."""
        return self.ready + self.delayed + self.in_flight


def depths_of(pipeline: Pipeline, client: Client, *, interval: float | None = None) -> list[QueueDepth]:
    """Count the messages of each queue; twice, so many seconds apart, for rates. Raises QueueNotFound."""
    if interval is not None:
        check_number("interval", interval, 0.01, LONGEST_INTERVAL)
    check_pipeline(pipeline)
    pipeline.check_queues(client)
    queues = [client.queue(name) for name in pipeline.queues]
    found = [_depth(client, queue) for queue in queues]
    if interval is None:
        return found
    began = time.monotonic()
    time.sleep(interval)
    return with_rates(found, [_depth(client, queue) for queue in queues], time.monotonic() - began)


def with_rates(before: Sequence[QueueDepth], now: Sequence[QueueDepth], seconds: float) -> list[QueueDepth]:
    """What there is now, with how fast it has changed since."""
    return [
        msgspec.structs.replace(later, per_second=(later.waiting - earlier.waiting) / seconds)
        for earlier, later in zip(before, now, strict=True)
    ]


def _depth(client: Client, queue: Queue) -> QueueDepth:
    counts, settings = queue.counts(), queue.settings
    dead = dead_letter_name(queue.name, settings) if settings.has_dead_letters else None
    return QueueDepth(
        queue=queue.name,
        ready=counts.ready,
        delayed=counts.delayed,
        in_flight=counts.in_flight,
        dead=client.queue(dead).counts().ready if dead is not None and client.exists(dead) else 0,
        oldest=counts.oldest,
        paused=settings.delivery_paused,
    )
