"""Dropping the oldest messages of a queue that has more than its bounds allow."""

from __future__ import annotations

import heapq
import logging
from collections import Counter
from collections.abc import Iterator

from shardq.browsing import slices
from shardq.context.decision_log import DecisionLog
from shardq.context.queue_context import QueueContext
from shardq.errors import ShardqError
from shardq.receiving.expiring import PAGE_MESSAGES, claim_unseen, is_claimable
from shardq.settling.settle import Settling
from shardq.settling.verbs import OVERFLOW
from shardq.sharding.shard import Shard
from shardq.storage.requests import Peek

__all__ = ["drop_oldest"]

_log = logging.getLogger(__name__)

_PREFIX = "shardq-trim:"
_TURN = 1_000_000
"""For how long, in microseconds, one client alone drops messages. Two that counted the same would drop twice that."""


def drop_oldest(context: QueueContext, count: int) -> int:
    """Drop about so many ready messages, those that were sent first; returns how many. None while another client does.

    Of each shard the first in the order of delivery go. What is held is not touched, nor what is delayed. What cannot
    be dropped because the store fails is dropped another time.
    """
    try:
        mine = context.fullness.owner.get()
        if DecisionLog(context, _PREFIX).decide("turn", mine, _TURN).value != mine:
            return 0
        return sum(_drop(context, shard, number) for shard, number in _chosen(context, count).items())
    except ShardqError as error:
        _log.warning(
            "queue %s has more than its bounds allow, which was not dropped: %s", context.name, error
        )
        return 0


def _chosen(context: QueueContext, count: int) -> Counter[Shard]:
    """How many messages of each shard are the oldest."""
    shards = context.retry(context.store.shards, context.name)
    chosen: Counter[Shard] = Counter()
    for _, shard, messages in heapq.merge(*(_ready(context, shard, count) for shard in shards)):
        chosen[shard] += min(messages, count)
        count -= min(messages, count)
        if not count:
            break
    return chosen


def _ready(context: QueueContext, shard: Shard, count: int) -> Iterator[tuple[int, Shard, int]]:
    """When the ready slices of a shard were sent, with their messages, in the order of delivery."""
    latest = 0
    for piece in slices(context, Peek(shard, min(count, PAGE_MESSAGES), bodies=False)):
        if is_claimable(context, piece):
            latest = max(latest, piece.bundle.enqueued_at)  # what comes behind goes after it
            yield latest, shard, piece.count


def _drop(context: QueueContext, shard: Shard, count: int) -> int:
    dropped = 0
    while dropped < count:
        held = claim_unseen(context, shard, min(count - dropped, PAGE_MESSAGES))
        settling = Settling(context, OVERFLOW).run([piece.select() for piece in held])
        done = sum(len(selection.positions) for selection in settling.done)
        if settling.failures:
            raise settling.failures.error(f"messages of queue {context.name!r} were not dropped")
        if not done:
            break
        dropped += done
    return dropped
