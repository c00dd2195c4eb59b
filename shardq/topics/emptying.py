"""Taking away what a subscription got before it was rewound, and nothing of what it gets after that."""

from __future__ import annotations

from collections.abc import Callable

from shardq.browsing import slices
from shardq.context.queue_context import QueueContext
from shardq.storage.bundle_id import made_at
from shardq.storage.requests import Peek

__all__ = ["empty"]

_PAGE_MESSAGES = 1_000


def empty(context: QueueContext, before: int, keep: Callable[[], None]) -> None:
    """Remove the messages of rounds before a moment, in any state. ``keep`` is called now and then.

    It names what it removes. So one that stood still meanwhile removes nothing that came later.
    """
    for shard in context.retry(context.store.shards, context.name):
        for piece in slices(context, Peek(shard, _PAGE_MESSAGES, bodies=False)):
            if made_at(piece.bundle.id) >= before:
                continue
            for position in range(piece.first, piece.first + piece.count):
                context.retry(context.store.remove, shard, piece.bundle.id, position)
            keep()
