"""Counting what was received, and showing an observer for how long it was due."""

from __future__ import annotations

from collections.abc import Sequence

from shardq.core.context.queue_context import QueueContext
from shardq.core.held import HeldSlice
from shardq.errors import StoreUnavailable

__all__ = ["count_received"]


def count_received(context: QueueContext, held: Sequence[HeldSlice]) -> None:
    """Count messages that were received from a queue, or that a read found none."""
    if not held:
        context.counters.add(empty_reads=1)
        return
    received = redelivered = acked = 0
    for piece in held:
        received += piece.count
        if piece.deliveries > 1:
            redelivered += piece.count
        if piece.finished:
            acked += piece.count
    context.counters.add(received=received, redelivered=redelivered, acked=acked)
    if context.observer is None:
        return
    try:
        now = context.store.now()
    except StoreUnavailable:  # its clock is in doubt
        return
    waits = [
        (now - max(each.bundle.due, each.bundle.enqueued_at), each.count)
        for each in held
        if each.deliveries <= 1
    ]
    context.observer.received(context.name, waits)
