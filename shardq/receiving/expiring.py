"""Removing leftovers, and messages that are older than the retention, also when nobody receives messages."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

from shardq.browsing import slices
from shardq.clock import microseconds
from shardq.context.queue_context import QueueContext
from shardq.context.retry import Failures
from shardq.errors import ShardqError
from shardq.held import HeldSlice
from shardq.receiving.delivery_filter import DeliveryFilter
from shardq.settling.settle import give_back_unseen
from shardq.sharding.shard import Shard
from shardq.storage.requests import Claim, EntryState, Peek, StoredSlice, Sweep, in_queue_since

__all__ = ["expire", "sweep"]

PAGE_MESSAGES = 1_000
CLAIM_LEASE = 60_000_000  # microseconds
TOKEN_BYTES = 16


def sweep(context: QueueContext) -> int:
    """Remove history that is over and leftovers of crashed clients; returns how many things."""
    history_before = context.store.now() - microseconds(context.settings.history_retention)
    removed = 0
    while found := context.retry(context.store.sweep, Sweep(context.name, history_before)):
        removed += found
    return removed


def expire(context: QueueContext) -> int:
    """Remove what is older than the queue's retention and held by nobody; returns how many messages.

    Messages at the front of a shard are claimed and dropped, 1,000 at a time. The others, such as those that are not
    due yet, are removed one by one. When a shard fails, the others are still done; the error is raised at the end.
    """
    if context.settings.retention is None:
        return 0
    removed, failures = 0, Failures()
    for shard in context.retry(context.store.shards, context.name):
        try:
            removed += _drop_first(context, shard) + _remove_rest(context, shard)
        except ShardqError as error:
            failures.add(shard, error)
    if failures:
        raise failures.error(f"messages of queue {context.name!r} that are too old were not removed")
    return removed


def _drop_first(context: QueueContext, shard: Shard) -> int:
    dropped = 0
    while count := _too_old_in_front(context, shard):
        found = _drop(context, shard, count)
        if not found:
            break
        dropped += found
    return dropped


def _too_old_in_front(context: QueueContext, shard: Shard) -> int:
    """How many messages a claim would get before the first that is young enough."""
    page = context.retry(context.store.peek, Peek(shard, PAGE_MESSAGES, bodies=False))
    count = 0
    for piece in page.slices:
        if _is_held(context, piece) or piece.state is EntryState.DELAYED:
            continue
        if not _is_too_old(context, piece):
            break
        count += piece.count
    return min(count, PAGE_MESSAGES)


def _drop(context: QueueContext, shard: Shard, count: int) -> int:
    """Claim messages, drop those that are too old, and give the others back in their places."""
    token = secrets.token_bytes(TOKEN_BYTES)
    request = Claim(shard, token, count, CLAIM_LEASE, "sweep", started=False)
    claimed = context.retry(context.store.claim, request)
    held = [HeldSlice(shard, piece, token, claimed.lease_until, started=False) for piece in claimed.slices]
    kept = DeliveryFilter(context).deliverable(held, context.settings)
    give_back_unseen(context, kept)
    return sum(piece.count for piece in held) - sum(piece.count for piece in kept)


def _remove_rest(context: QueueContext, shard: Shard) -> int:
    removed = sum(
        context.retry(context.store.remove, shard, piece.bundle.id, position)
        for piece in _found_too_old(context, shard)
        for position in range(piece.first, piece.first + piece.count)
    )
    context.counters.add(expired=removed)
    return removed


def _found_too_old(context: QueueContext, shard: Shard) -> Iterator[StoredSlice]:
    for piece in slices(context, Peek(shard, PAGE_MESSAGES, bodies=False)):
        if not _is_held(context, piece) and _is_too_old(context, piece):
            yield piece


def _is_held(context: QueueContext, piece: StoredSlice) -> bool:
    return piece.state is EntryState.IN_FLIGHT and piece.due > context.store.now()


def _is_too_old(context: QueueContext, piece: StoredSlice) -> bool:
    retention = context.settings.retention
    return retention is not None and in_queue_since(piece.bundle) < context.store.now() - microseconds(
        retention
    )
