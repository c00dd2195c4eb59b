"""Waiting until the clients have emptied a queue."""

from __future__ import annotations

import time
from contextlib import suppress

import shardq

__all__ = ["wait_until_empty"]


def wait_until_empty(queue: shardq.Queue, seconds: float) -> list[str]:
    """Wait until nothing is ready, delayed or in flight; tells of what is left after so many seconds."""
    until, left = time.monotonic() + seconds, "it could not be counted"
    while time.monotonic() < until:
        with suppress(shardq.StoreUnavailable, shardq.OutcomeUnknown):
            counts = queue.counts()
            if not counts.ready + counts.delayed + counts.in_flight:
                return []
            left = str(counts)
        time.sleep(0.2)
    return [f"queue {queue.name} was not emptied within {seconds:.0f} s: {left}"]
