"""Removing what no operation needs any more."""

from __future__ import annotations

from shardq.storage.mongodb import consumers, dedupe, directory, floors, intents, removal
from shardq.storage.mongodb.directory import Open
from shardq.storage.mongodb.session import Session
from shardq.storage.requests import Sweep

__all__ = ["sweep"]

_LIMIT = 1000


def sweep(session: Session, collections: Open, request: Sweep, now: int) -> int:
    """Give up history, keys and consumers, up to 1,000 of each kind and shard; returns how many.

    The ids of finished bundles are deleted by the server. Of crashed clients only forwards are
    left, on a standalone server: a bundle is one document.
    """
    shards = directory.listing(session, request.queue)
    processed = sum(removal.expire(session, shard, request.history_before, _LIMIT) for shard in shards)
    completed = intents.sweep(session, collections, request.queue, now)
    return (
        processed
        + completed
        + floors.heal(session, shards)
        + dedupe.expire(session, request.queue, now, _LIMIT)
        + consumers.expire(session, request.queue, now)
    )
