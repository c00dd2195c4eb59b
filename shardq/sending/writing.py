"""Storing prepared messages: bundles, dedupe keys, one append for each shard."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, cast

import msgspec

from shardq.clock import to_datetime
from shardq.context.queue_context import QueueContext
from shardq.errors import OutcomeUnknown, ShardqError
from shardq.message import Attempt, OutgoingMessage
from shardq.sending.admission import check_takes_messages
from shardq.sending.appending import append, check_age
from shardq.sending.dedupe import Reservation, confirm, reserve
from shardq.sending.outgoing import PreparedMessage
from shardq.sending.planned import Draft, make_drafts
from shardq.sending.sent_ids import BundleIdRun
from shardq.sharding.shard import Shard
from shardq.storage.requests import Append

__all__ = ["Written", "plan", "store", "tell_stored", "unsent"]


class Written(msgspec.Struct, frozen=True):
    """What came of storing some messages: their ids by place, and what stopped it where it did not get through."""

    ids: Sequence[str | None]  # None: not confirmed
    error: BaseException | None = None
    pending: tuple[Draft, ...] = ()  # the bundles that were not confirmed
    doubtful: Collection[bytes] = ()  # those of them, by id, that may be stored all the same

    @property
    def stored(self) -> Sequence[str]:
        """The ids of what is stored, in order."""
        if self.error is None:
            return cast(
                "Sequence[str]", self.ids
            )  # not copied: they may be made only when they are asked for
        return [identity for identity in self.ids if identity is not None]


def plan(context: QueueContext, messages: Sequence[PreparedMessage]) -> list[Draft]:
    """The bundles that the messages make, each with its place and its id; raises QueuePaused or RepeatTooLate.

    Bundles are stored in the order of their plans where each is stored before the next one is.
    """
    check_takes_messages(context)
    drafts = make_drafts(context, messages, context.store.now())
    for draft in drafts:
        if draft.again:
            check_age(context, draft.shard, draft.bundle.id)
    return drafts


def store(context: QueueContext, drafts: Sequence[Draft], count: int) -> Written:
    """Store what was planned for so many messages; returns when the store has confirmed them, or could not.

    What stops it is in the answer, also what is no error of the store.
    """
    doubtful = {draft.bundle.id for draft in drafts if draft.again}
    try:
        reservation = reserve(context, drafts)
    except BaseException as error:
        return Written([None] * count, error, tuple(drafts), doubtful)
    stored: list[Draft] = []
    failure = _append(context, reservation, stored, doubtful)
    if failure is None:
        failure = _confirm(context, reservation)
    holders = {draft.dedupe_key: str(draft.message_id(0)) for draft in stored if draft.dedupe_key is not None}
    twins = {
        twin.places[0]: holders[twin.dedupe_key] for twin in reservation.twins if twin.dedupe_key in holders
    }
    duplicates = reservation.duplicates | twins
    ids = _ids(stored, duplicates, count)
    context.counters.add(sent=sum(len(draft.places) for draft in stored), deduplicated=len(duplicates))
    done = {draft.bundle.id for draft in stored}
    pending = [draft for draft in reservation.drafts if draft.bundle.id not in done]
    pending += [twin for twin in reservation.twins if twin.places[0] not in twins]
    return Written(ids, failure, tuple(pending), doubtful)


def tell_stored(context: QueueContext, messages: Sequence[OutgoingMessage], written: Written) -> None:
    """Call the hook for those of the messages that are stored."""
    stored = [pair for pair in zip(messages, written.ids, strict=True) if pair[1] is not None]
    if context.hooks is not None and stored:
        context.hooks.after_send(context.name, [message for message, _ in stored], written.stored)


def unsent(
    written: Written, messages: Sequence[PreparedMessage], bodies: Sequence[Any]
) -> Iterator[tuple[int, OutgoingMessage]]:
    """What was not confirmed, by place: to be sent again under the id that it may be stored under."""
    for draft in written.pending:
        doubtful = draft.bundle.id in written.doubtful
        for place, identity in draft.ids():
            options = messages[place].options
            yield (
                place,
                OutgoingMessage(
                    body=bodies[place],
                    priority=draft.bundle.priority,
                    due=to_datetime(draft.bundle.due),
                    headers=options.headers,
                    dedupe_key=options.dedupe_key,
                    id=str(identity) if doubtful else None,
                    attempt=Attempt(draft.bundle) if doubtful and draft.bundle.count > 1 else None,
                ),
            )


def _append(
    context: QueueContext, reservation: Reservation, stored: list[Draft], doubtful: set[bytes]
) -> BaseException | None:
    by_shard: dict[Shard, list[Draft]] = {}
    for draft in reservation.drafts:
        by_shard.setdefault(draft.shard, []).append(draft)
    for shard, group in by_shard.items():
        request = Append(shard, tuple(draft.bundle for draft in group))
        keyed = {draft.bundle.id for draft in group if draft.dedupe_key is not None}
        try:
            append(context, request, sent_before=doubtful, keyed=keyed, keys_read_at=reservation.read_at)
        except BaseException as error:
            if not isinstance(error, ShardqError) or isinstance(error, OutcomeUnknown):
                doubtful.update(draft.bundle.id for draft in group)
            return error
        stored.extend(group)
    return None


def _confirm(context: QueueContext, reservation: Reservation) -> BaseException | None:
    try:
        confirm(context, reservation)
    except ShardqError:  # all is stored; whoever is handed the messages confirms their keys
        return None
    except BaseException as error:
        return error
    return None


def _ids(stored: Sequence[Draft], duplicates: dict[int, str], count: int) -> Sequence[str | None]:
    if len(stored) == 1 and stored[0].bundle.count == count and stored[0].complete:
        return BundleIdRun(stored[0].shard, stored[0].bundle.id, count)
    ids: list[str | None] = [None] * count
    for draft in stored:
        for place, identity in draft.ids():
            ids[place] = str(identity)
    for place, holder in duplicates.items():
        ids[place] = holder
    return ids
