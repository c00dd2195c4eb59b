"""Storing prepared messages: bundles, dedupe keys, one append for each shard."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import msgspec

from shardq.delivery.context import QueueContext
from shardq.delivery.dedupe import confirm, reserve
from shardq.delivery.drafts import Draft, make_drafts
from shardq.delivery.outgoing import PreparedMessage
from shardq.delivery.sent_ids import BundleIdRun
from shardq.errors import QueuePaused, ShardqError
from shardq.sharding.shard import Shard
from shardq.storage.requests import Append

__all__ = ["Written", "write"]


class Written(msgspec.Struct, frozen=True):
    """What came of storing some messages: their ids by place, and what stopped it where it did not get through."""

    ids: Sequence[str | None]  # None: not confirmed
    error: ShardqError | None = None
    pending: tuple[Draft, ...] = ()  # the bundles that were not confirmed


def write(context: QueueContext, messages: Sequence[PreparedMessage]) -> Written:
    """Store the messages; returns when the store has confirmed them, or could not.

    Raises QueuePaused or QueueNotFound, with nothing stored.
    """
    if context.settings.sends_paused:
        raise QueuePaused(
            f"queue {context.name!r} takes no messages now: `shardq resume {context.name}` lets it"
        )
    drafts = make_drafts(context, messages, context.store.now())
    try:
        reservation = reserve(context, drafts)
    except ShardqError as error:
        return Written([None] * len(messages), error, tuple(drafts))
    stored: list[Draft] = []
    failure = _append(context, reservation.drafts, stored)
    if failure is None:
        with suppress(
            ShardqError
        ):  # all is stored; an unconfirmed key only costs its next sender a second look
            confirm(context, reservation)
    ids = _ids(stored, reservation.duplicates, len(messages))
    context.counters.add(
        sent=sum(draft.bundle.count for draft in stored), deduplicated=len(reservation.duplicates)
    )
    done = {draft.bundle.id for draft in stored}
    return Written(ids, failure, tuple(draft for draft in reservation.drafts if draft.bundle.id not in done))


def _append(context: QueueContext, drafts: Sequence[Draft], stored: list[Draft]) -> ShardqError | None:
    by_shard: dict[Shard, list[Draft]] = {}
    for draft in drafts:
        by_shard.setdefault(draft.shard, []).append(draft)
    for shard, group in by_shard.items():
        try:
            context.retry(context.store.append, Append(shard, tuple(draft.bundle for draft in group)))
        except ShardqError as error:
            return error
        stored.extend(group)
    return None


def _ids(stored: Sequence[Draft], duplicates: dict[int, str], count: int) -> Sequence[str | None]:
    if len(stored) == 1 and stored[0].bundle.count == count:
        return BundleIdRun(stored[0].shard, stored[0].bundle.id, count)
    ids: list[str | None] = [None] * count
    for draft in stored:
        for position, place in enumerate(draft.places):
            ids[place] = str(draft.message_id(position))
    for place, identity in duplicates.items():
        ids[place] = identity
    return ids
