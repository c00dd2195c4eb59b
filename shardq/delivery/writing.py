"""Storing prepared messages: bundles, dedupe keys, one append for each shard."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import cast

import msgspec

from shardq.delivery.context import QueueContext
from shardq.delivery.dedupe import confirm, reserve
from shardq.delivery.drafts import Draft, make_drafts
from shardq.delivery.outgoing import PreparedMessage
from shardq.delivery.sent_ids import BundleIdRun
from shardq.errors import QueuePaused, ShardqError
from shardq.message import OutgoingMessage
from shardq.sharding.shard import Shard
from shardq.storage.requests import Append

__all__ = ["Written", "plan", "store", "tell_stored"]


class Written(msgspec.Struct, frozen=True):
    """What came of storing some messages: their ids by place, and what stopped it where it did not get through."""

    ids: Sequence[str | None]  # None: not confirmed
    error: Exception | None = None
    pending: tuple[Draft, ...] = ()  # the bundles that were not confirmed

    @property
    def stored(self) -> Sequence[str]:
        """The ids of what is stored, in order."""
        if self.error is None:
            return cast(
                "Sequence[str]", self.ids
            )  # not copied: they may be made only when they are asked for
        return [identity for identity in self.ids if identity is not None]


def plan(context: QueueContext, messages: Sequence[PreparedMessage]) -> list[Draft]:
    """The bundles that the messages make, each with its place and its id; raises QueuePaused.

    Bundles are stored in the order of their plans where each is stored before the next one is.
    """
    if context.settings.sends_paused:
        raise QueuePaused(
            f"queue {context.name!r} takes no messages now: `shardq resume {context.name}` lets it"
        )
    return make_drafts(context, messages, context.store.now())


def store(context: QueueContext, drafts: Sequence[Draft], count: int) -> Written:
    """Store what was planned for so many messages; returns when the store has confirmed them, or could not."""
    try:
        reservation = reserve(context, drafts)
    except ShardqError as error:
        return Written([None] * count, error, tuple(drafts))
    stored: list[Draft] = []
    failure = _append(context, reservation.drafts, stored)
    if failure is None:
        with suppress(
            ShardqError
        ):  # all is stored; an unconfirmed key only costs its next sender a second look
            confirm(context, reservation)
    ids = _ids(stored, reservation.duplicates, count)
    context.counters.add(
        sent=sum(draft.bundle.count for draft in stored), deduplicated=len(reservation.duplicates)
    )
    done = {draft.bundle.id for draft in stored}
    return Written(ids, failure, tuple(draft for draft in reservation.drafts if draft.bundle.id not in done))


def tell_stored(context: QueueContext, messages: Sequence[OutgoingMessage], written: Written) -> None:
    """Call the hook for those of the messages that are stored."""
    stored = [pair for pair in zip(messages, written.ids, strict=True) if pair[1] is not None]
    if context.hooks is not None and stored:
        context.hooks.after_send(context.name, [message for message, _ in stored], written.stored)


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
