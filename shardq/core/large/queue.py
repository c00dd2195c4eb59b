"""The queue of large bodies, as one client sees it."""

from __future__ import annotations

from shardq.core.context.queue_context import QueueContext
from shardq.core.large.layout import BODIES, SETTINGS
from shardq.errors import QueueNotFound
from shardq.storage.requests import QueueRecord

__all__ = ["bodies_queue", "existing_bodies_queue"]


def existing_bodies_queue(context: QueueContext) -> QueueContext | None:
    """The queue of large bodies in the store of another queue; None when nobody has made it."""
    try:
        return context.sibling(BODIES)
    except QueueNotFound:
        return None


def bodies_queue(context: QueueContext) -> QueueContext:
    """The queue of large bodies in the store of another queue. It is made if it is missing."""
    found = existing_bodies_queue(context)
    if found is not None:
        return found
    context.retry(context.store.create_queue, QueueRecord.new(BODIES, SETTINGS.encode()))
    context.retry(context.store.prepare, SETTINGS.layout.all_shards(BODIES))
    return context.sibling(BODIES)
