"""Reading a shard of a queue, or of its history, without changing anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from shardq.base.shard import Shard
from shardq.core.browsing import slices
from shardq.core.context.queue_context import QueueContext
from shardq.spark.rows import Piece, piece_of_view
from shardq.storage.requests import Peek, StoredSlice, in_queue_since

__all__ = ["pieces_of_shard"]

PAGE_MESSAGES = 2_000


def pieces_of_shard(
    context: QueueContext,
    shard: Shard,
    *,
    processed: bool,
    bodies: bool,
    since: int,
    until: int,
    keeps: Callable[[StoredSlice], bool] = lambda _: True,
) -> Iterator[Piece]:
    """What is stored in a shard: of the history what was acked in the period, else what came into the queue in it."""
    request = Peek(shard, PAGE_MESSAGES, processed=processed, bodies=bodies)
    if processed:  # a period of what waits would be one of due times
        request = msgspec.structs.replace(request, since=since, until=until)
    for stored in slices(context, request):
        if keeps(stored) and (processed or since <= in_queue_since(stored.bundle) < until):
            yield piece_of_view(shard, stored)
