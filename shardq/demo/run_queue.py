"""The queue of a run: made, counted when it is over, and removed."""

from __future__ import annotations

import msgspec

import shardq
from shardq.demo.plan import Plan

__all__ = ["Leftovers", "count_leftovers", "create_queue", "remove_queue"]


FIRST_RETRY_SECONDS = 3.0


class Leftovers(msgspec.Struct, frozen=True):
    """Messages of the queue by state, and those of its dead-letter queue."""

    ready: int
    delayed: int
    in_flight: int
    dead: int


def create_queue(plan: Plan) -> None:
    """Make the queue of a run; a store that is out of reach is not waited for as long as in the middle of a run."""
    with shardq.connect(plan.url, retry_seconds=FIRST_RETRY_SECONDS) as client:
        client.create_queue(
            plan.queue,
            shards=plan.shards,
            time_shards=plan.time_shards,
            time_shard_seconds=plan.time_shard_seconds,
            visibility_timeout=plan.visibility_timeout,
        )


def count_leftovers(plan: Plan) -> Leftovers:
    """Count what is left after a run."""
    with shardq.connect(plan.url) as client:
        queue = client.queue(plan.queue)
        counts, dead = queue.counts(), client.queue(_dead_letter_queue(queue)).counts()
    return Leftovers(
        counts.ready, counts.delayed, counts.in_flight, dead.ready + dead.delayed + dead.in_flight
    )


def remove_queue(plan: Plan) -> None:
    """Remove the queue of a run and its dead-letter queue, if they are there."""
    with shardq.connect(plan.url) as client:
        if client.exists(plan.queue):
            dead = _dead_letter_queue(client.queue(plan.queue))
            client.delete_queue(plan.queue)
            if client.exists(dead):
                client.delete_queue(dead)


def _dead_letter_queue(queue: shardq.Queue) -> str:
    return queue.settings.dead_letter_queue or f"{queue.name}.dead"
