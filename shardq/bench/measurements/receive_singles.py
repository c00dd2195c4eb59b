"""Bulk reads of messages that were sent one by one."""

from __future__ import annotations

from shardq.bench.load import Load, bodies
from shardq.bench.receiving import receive_into
from shardq.bench.result import Sample
from shardq.bench.sending import send_one_by_one
from shardq.bench.stage import Stage

__all__ = ["receive_singles"]


def receive_singles(stage: Stage, load: Load) -> Sample:
    """Messages per second received by ``batch`` and acked, where each was sent alone."""
    with stage.queue() as place:
        with place.open() as queue:
            send_one_by_one(queue, bodies(load.messages, load.body_bytes), load)
        return receive_into(place, load)
