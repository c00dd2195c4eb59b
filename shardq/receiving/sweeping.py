"""Removing what nothing needs any more."""

from __future__ import annotations

from shardq.clock import microseconds
from shardq.context.queue_context import QueueContext
from shardq.storage.requests import Sweep

__all__ = ["sweep"]


def sweep(context: QueueContext) -> int:
    """Remove history that is over and leftovers of crashed clients; returns how many things."""
    history_before = context.store.now() - microseconds(context.settings.history_retention)
    removed = 0
    while found := context.retry(context.store.sweep, Sweep(context.name, history_before)):
        removed += found
    return removed
