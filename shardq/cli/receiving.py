"""Receiving messages for a command that prints them."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from shardq.batch import Batch
from shardq.consumer import Consumer
from shardq.errors import LeaseLost

__all__ = ["Settle", "receive_messages"]

MAX_BATCH = 1_000


class Settle(Enum):
    """When messages are acked."""

    AFTER = "after they are printed"
    BEFORE = "before they are printed"
    NEVER = "never"


def receive_messages(
    consumer: Consumer, limit: int, wait: float, settle: Settle, show: Callable[[Batch], None]
) -> int:
    """Show up to so many messages, a batch at a time, until none comes within ``wait`` seconds; returns how many."""
    shown = 0
    while shown < limit:
        batch = consumer.receive(min(limit - shown, MAX_BATCH), wait=wait)
        if not batch:
            break
        if settle is Settle.BEFORE and not _acked(batch):
            continue
        show(batch)
        shown += len(batch)
        if settle is Settle.AFTER:
            batch.ack()
    return shown


def _acked(batch: Batch) -> bool:
    try:
        batch.ack()
    except LeaseLost:  # somebody else has some of them by now, so none is shown twice
        return False
    return True
