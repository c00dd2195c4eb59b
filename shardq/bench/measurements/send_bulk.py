"""Bulk sends: all messages of a process with one call."""

from __future__ import annotations

from shardq.bench.load import Load
from shardq.bench.result import Sample
from shardq.bench.sending import send_bulk as bulk
from shardq.bench.sending import send_from
from shardq.bench.stage import Stage

__all__ = ["send_bulk"]


def send_bulk(stage: Stage, load: Load) -> Sample:
    """Messages per second stored by ``processes`` that each send their share at once."""
    with stage.queue() as place:
        return send_from(place, load, bulk)
