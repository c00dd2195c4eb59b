"""Taking away what a subscription got before it was rewound, and nothing of what it gets after that."""

from __future__ import annotations

from collections.abc import Callable

from shardq.base.shard import Shard
from shardq.core.browsing import slices
from shardq.core.context.queue_context import QueueContext
from shardq.storage.bundle_id import made_at
from shardq.storage.requests import Peek

__all__ = ["empty"]

_PAGE_MESSAGES = 1_000


def empty(context: QueueContext, before: int, keep: Callable[[], None]) -> None:
    """Remove the messages of rounds before a moment, in any state. ``keep`` is called now and then.

    It names what it removes. So one that stood still meanwhile removes nothing that came later. It ends with a
    look that finds none: consumers may move messages past a look.
    """
    for shard in context.retry(context.store.shards, context.name):
        while _removed(context, shard, before, keep):
            continue


def _removed(context: QueueContext, shard: Shard, before: int, keep: Callable[[], None]) -> int:
    """Remove what a look at a shard finds; returns how many messages."""
    removed = 0
    for piece in slices(context, Peek(shard, _PAGE_MESSAGES, bodies=False)):
        if made_at(piece.bundle.id) >= before:
            continue
        for position in range(piece.first, piece.first + piece.count):
            removed += context.retry(context.store.remove, shard, piece.bundle.id, position)
        keep()
    return removed
