"""Single sends: one call for each message, one after the other."""

from __future__ import annotations

from shardq.bench.load import Load
from shardq.bench.result import Sample
from shardq.bench.sending import send_from, send_one_by_one
from shardq.bench.stage import Stage

__all__ = ["send_singles"]


def send_singles(stage: Stage, load: Load) -> Sample:
    """Messages per second stored by ``processes`` that each send one message after the other."""
    with stage.queue() as place:
        return send_from(place, load, send_one_by_one)
