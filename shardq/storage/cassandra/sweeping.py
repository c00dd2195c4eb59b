"""Removing what no operation needs any more."""

from __future__ import annotations

from shardq.storage.cassandra import directory, removal
from shardq.storage.cassandra.session import Session
from shardq.storage.requests import Sweep

__all__ = ["sweep"]

_LIMIT = 200


def sweep(session: Session, request: Sweep) -> int:
    """Give up history, up to 200 slices of each shard; returns how many.

    Crashed clients leave no orphans, because a bundle goes in the change that finishes its last message; keys and
    consumers end by themselves.
    """
    return sum(
        removal.expire(session, shard, request.history_before, _LIMIT)
        for shard in directory.listing(session, request.queue)
    )
