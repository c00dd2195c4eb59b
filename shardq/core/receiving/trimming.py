"""Dropping the oldest messages of a queue that has more than its bounds allow."""

from __future__ import annotations

import heapq
import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec

from shardq.base.receipt import MessageId
from shardq.base.shard import Shard
from shardq.core.browsing import remove
from shardq.core.context.decision_log import DecisionLog
from shardq.core.context.queue_context import QueueContext
from shardq.core.receiving.expiring import PAGE_MESSAGES, claim_unseen, due_slices
from shardq.core.settling.settle import Settling
from shardq.core.settling.verbs import OVERFLOW
from shardq.errors import ShardqError

__all__ = ["drop_oldest"]

_log = logging.getLogger(__name__)

_PREFIX = "shardq-trim:"
_TURN = 1_000_000
"""For how long, in microseconds, one client alone drops messages. Two that counted the same would drop twice that."""


def drop_oldest(context: QueueContext, count: int) -> int:
    """Drop about so many ready messages, those that were sent first; returns how many: 0 while another client does it.

    Of each shard the first in the order of delivery go. What is held is not touched, nor what is delayed. What no claim
    gets, as it waits behind such a message of its group, is removed one by one, up to 1,000 at a time. What cannot be
    dropped because the store fails is dropped another time.
    """
    try:
        mine = context.fullness.owner.get()
        if DecisionLog(context, _PREFIX).decide("turn", mine, _TURN).value != mine:
            return 0
        chosen = _chosen(context, count)
        dropped = sum(_drop(context, shard, number) for shard, number in _claimable(chosen).items())
        return dropped + _remove(context, (each for each in chosen if each.is_stuck))
    except ShardqError as error:
        _log.warning(
            "queue %s has more than its bounds allow, which was not dropped: %s", context.name, error
        )
        return 0


class _Ready(msgspec.Struct, frozen=True):
    """Messages of a slice that is ready."""

    sent: int  # not before what comes before it in its shard
    shard: Shard
    bundle_id: bytes
    first: int
    count: int
    is_stuck: bool  # behind a message of its group that no claim gets


def _chosen(context: QueueContext, count: int) -> list[_Ready]:
    """The oldest messages, so many."""
    shards = context.retry(context.store.shards, context.name)
    chosen: list[_Ready] = []
    ready = (_ready(context, shard, count) for shard in shards)
    for each in heapq.merge(*ready, key=lambda each: (each.sent, each.shard)):
        chosen.append(msgspec.structs.replace(each, count=min(each.count, count)))
        count -= chosen[-1].count
        if not count:
            break
    return chosen


def _ready(context: QueueContext, shard: Shard, count: int) -> Iterator[_Ready]:
    """The ready slices of a shard, in the order of delivery."""
    latest = 0
    for piece, is_claimable in due_slices(context, shard, min(count, PAGE_MESSAGES)):
        latest = max(latest, piece.bundle.enqueued_at)  # what comes behind goes after it
        yield _Ready(latest, shard, piece.bundle.id, piece.first, piece.count, not is_claimable)


def _claimable(chosen: Iterable[_Ready]) -> Counter[Shard]:
    """How many of the messages of each shard a claim gets."""
    counts: Counter[Shard] = Counter()
    for each in chosen:
        if not each.is_stuck:
            counts[each.shard] += each.count
    return counts


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


def _remove(context: QueueContext, stuck: Iterable[_Ready]) -> int:
    """Remove messages one by one. One that was received meanwhile is worked on, and cannot come again."""
    ids = (
        MessageId(each.shard, each.bundle_id, each.first + position)
        for each in stuck
        for position in range(each.count)
    )
    removed = sum(remove(context, identity, event="dropped") for identity in islice(ids, PAGE_MESSAGES))
    context.counters.add(dropped=removed)
    return removed
