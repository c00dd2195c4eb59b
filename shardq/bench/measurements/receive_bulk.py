"""Bulk reads of messages that were sent in bulk."""

from __future__ import annotations

from shardq.bench.load import Load, bodies
from shardq.bench.receiving import receive_into
from shardq.bench.result import Sample
from shardq.bench.sending import send_bulk
from shardq.bench.stage import Stage

__all__ = ["receive_bulk"]


def receive_bulk(stage: Stage, load: Load) -> Sample:
    """Messages per second received by ``batch`` and acked; every body is looked at."""
    with stage.queue() as place:
        with place.open() as queue:
            send_bulk(queue, bodies(load.messages, load.body_bytes), load)
        return receive_into(place, load)
