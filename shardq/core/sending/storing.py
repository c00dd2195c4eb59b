"""Storing sent messages: plan the bundles, reserve dedupe keys, append shard by shard, and report the result."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from operator import attrgetter

import msgspec

from shardq.base.clock import to_datetime
from shardq.base.codec import BYTES
from shardq.base.outgoing_message import OutgoingMessage
from shardq.base.receipt import BundleIdRun, MessageId
from shardq.core.context.group_commit import GroupCommit, Pending, for_another_thread
from shardq.core.context.queue_context import QueueContext
from shardq.core.sending.appending import SEND, AppendPolicy, admit, append, check_age, prepare
from shardq.core.sending.dedupe_keys import ONCE, confirm, reserve
from shardq.core.sending.planned_bundles import (
    PlannedBundle,
    grouped_by_shard,
    in_lanes,
    parts_by_unique_key,
    plan_bundle,
    plan_bundles,
)
from shardq.core.sending.prepared import Send, prepare_options
from shardq.core.sending.unique_sends import UniqueSend
from shardq.errors import OutcomeUnknown, QueueFull, ShardqError
from shardq.storage.abilities import TransactionEnded
from shardq.storage.bundles import made_at

__all__ = ["Written", "joined_sends", "plan_sends", "report_stored", "send_alone", "send_once", "store_sends"]

_ITEM, _UNIQUE_KEY = attrgetter("item"), attrgetter("unique_key")


class Written(msgspec.Struct, frozen=True):
    """The result of storing messages: their ids by place, and the error that stopped it, if any."""

    bundles: Sequence[PlannedBundle]  # of all of them
    ids: Sequence[str | None]  # None: not confirmed
    error: BaseException | None = None
    pending: tuple[PlannedBundle, ...] = ()  # the bundles that were not confirmed
    doubtful: Collection[bytes] = ()  # those of them, by id, that may be stored all the same
    duplicates: int = 0  # that are not stored, as other messages have their keys

    @classmethod
    def failed(
        cls, bundles: Sequence[PlannedBundle], error: BaseException, doubtful: Collection[bytes] | None = None
    ) -> Written:
        """Make the result when nothing is confirmed. Without ``doubtful``, what was sent before may be stored."""
        if doubtful is None:
            doubtful = {planned.id for planned in bundles if planned.again}
        return cls(bundles, [None] * _count(bundles), error, tuple(bundles), doubtful)

    @property
    def stored(self) -> Sequence[str]:
        """The ids of what is stored, in order."""
        if self.error is None:  # not copied: an id may be made only when it is asked for
            return self.ids  # type: ignore[return-value]
        return [identity for identity in self.ids if identity is not None]

    def unsent(self) -> Iterator[tuple[int, OutgoingMessage]]:
        """Give the messages that were not confirmed, by place. One that may be stored is sent again by its id."""
        for planned in self.pending:
            doubtful = planned.id in self.doubtful
            attempt = planned.attempt if doubtful and planned.count > 1 else None
            for (place, identity), (send, item) in zip(planned.ids(), planned.given(), strict=True):
                message = send.outgoing(item)
                yield (
                    place,
                    msgspec.structs.replace(
                        message,
                        priority=planned.priority,
                        delay=0.0,
                        due=to_datetime(planned.due),
                        group=planned.group or None if doubtful else message.group,
                        id=str(identity) if doubtful else None,
                        attempt=attempt,
                    ),
                )


def plan_sends(context: QueueContext, sends: Sequence[Send]) -> list[PlannedBundle]:
    """Choose the shard and the id of each message, and call ``before_send``; raises QueuePaused or RepeatTooLate.

    Several sends have one message each. The caller has just read the settings. A pause is checked before a hook is
    called; the append checks it in any case.

    Bundles are stored in the order of their plans where each is stored before the next one is.
    """
    if context.hooks is not None:
        admit(context, SEND)
    lanes = context.live.known.group_concurrency
    if lanes > 1:
        sends = in_lanes(sends, lanes, context.lane_round_robin)
    now = context.store.now()
    if len(sends) == 1:
        bundles = [plan_bundle(context, sends, range(len(sends[0].bodies)), now)]
    else:
        bundles = plan_bundles(context, sends, now)
    for planned in bundles:
        if planned.again and planned.key is None:
            check_age(context, planned.shard, planned.id, made_at(planned.id))
    if context.hooks is not None:
        context.hooks.before_send(context.name, _described(bundles))
    return bundles


def store_sends(
    context: QueueContext, bundles: Sequence[PlannedBundle], policy: AppendPolicy = SEND
) -> Written:
    """Store all that was planned together, and return when the store has confirmed it, or with the error."""
    first = bundles[0]
    if any(map(_UNIQUE_KEY, bundles)):
        return _store_unique(context, bundles, policy)
    if len(bundles) > 1 or first.key is not None:
        return _store(context, bundles, _count(bundles), policy)
    try:
        append(context, policy, bundles)
    except BaseException as error:
        return Written.failed(bundles, error, _doubtful(bundles, error))
    count = len(first.places)
    if count == 1:
        return Written(bundles, [str(MessageId(first.shard, first.id, first.positions[0]))])
    return Written(bundles, _ids(bundles, {}, count))


def _store(
    context: QueueContext, bundles: Sequence[PlannedBundle], count: int, policy: AppendPolicy
) -> Written:
    """Store bundles of a send of ``count`` messages, of which some may have a dedupe key."""
    doubtful = {planned.id for planned in bundles if planned.again}
    try:
        reservation = reserve(context, bundles)
    except BaseException as error:
        return Written(bundles, [None] * count, error, tuple(bundles), doubtful)
    stored: list[PlannedBundle] = []
    some: list[PlannedBundle] = []
    failure: BaseException | None = None
    try:
        for some in grouped_by_shard(reservation.bundles):
            append(context, policy, some, keys_read_at=reservation.read_at)
            stored += some
        try:
            confirm(context, reservation)
        except ShardqError as error:  # all is stored; whoever is handed the messages confirms their keys
            # A run is repeated, and finds them stored. Of a transaction that has ended nothing is.
            if policy is not SEND or isinstance(error, TransactionEnded):
                raise
    except BaseException as error:
        failure = error
        doubtful |= _doubtful(some, error)
    holders = {planned.key: str(planned.message_id(0)) for planned in stored if planned.key is not None}
    repeated = {
        planned.places[0]: holders[planned.key] for planned in reservation.same_key if planned.key in holders
    }
    duplicates = reservation.duplicates | repeated
    others = 0  # an earlier attempt may have stored the message itself
    if duplicates:
        context.counters.add(deduplicated=len(duplicates))
        own = {(planned.places[0], str(planned.message_id(0))) for planned in bundles if planned.places}
        others = len(duplicates.items() - own)
    done = {planned.id for planned in stored}
    pending = [planned for planned in reservation.bundles if planned.id not in done]
    pending += [planned for planned in reservation.same_key if planned.places[0] not in repeated]
    return Written(bundles, _ids(stored, duplicates, count), failure, tuple(pending), doubtful, others)


def _store_unique(context: QueueContext, bundles: Sequence[PlannedBundle], policy: AppendPolicy) -> Written:
    """Store bundles of which some have a unique key; nothing after the first error."""
    unique = UniqueSend(context, policy)
    duplicates = 0
    ids: list[str | None] = [None] * _count(bundles)
    pending: list[PlannedBundle] = []
    doubtful: set[bytes] = set()
    for is_unique, part in parts_by_unique_key(bundles):
        if is_unique:
            unique.run(part)
        elif unique.error is not None:
            pending += part
            doubtful |= {planned.id for planned in part if planned.again}
        else:
            written = _store(context, part, len(ids), policy)
            unique.error, duplicates = written.error, duplicates + written.duplicates
            pending += written.pending
            doubtful.update(written.doubtful)
            ids = [identity or known for identity, known in zip(written.ids, ids, strict=True)]
    ids = [unique.ids.get(place, identity) for place, identity in enumerate(ids)]
    pending += unique.pending
    doubtful |= unique.doubtful
    return Written(bundles, ids, unique.error, tuple(pending), doubtful, duplicates + unique.duplicates)


def report_stored(context: QueueContext, written: Written) -> None:
    """Call ``after_send`` for those of the messages that are stored."""
    assert context.hooks is not None
    pairs = zip(_described(written.bundles), written.ids, strict=True)
    if stored := [message for message, identity in pairs if identity is not None]:
        context.hooks.after_send(context.name, stored, written.stored)


def _described(bundles: Sequence[PlannedBundle]) -> list[OutgoingMessage]:
    """Return the messages as hooks see them, as they are in the input."""
    found = {
        place: send.described(item)
        for planned in bundles
        for place, (send, item) in zip(planned.places, planned.given(), strict=True)
    }
    return [found[place] for place in sorted(found)]


def _count(bundles: Iterable[PlannedBundle]) -> int:
    """Return the number of places in the input. Bundles without places count as none."""
    return max((planned.places[-1] for planned in bundles if planned.places), default=-1) + 1


def _doubtful(bundles: Sequence[PlannedBundle], error: BaseException) -> set[bytes]:
    """Return the bundles that may be stored although the error kept them from being confirmed."""
    is_refused = isinstance(error, ShardqError) and not isinstance(error, OutcomeUnknown)
    return {planned.id for planned in bundles if planned.again or not is_refused}


def _ids(stored: Sequence[PlannedBundle], duplicates: dict[int, str], count: int) -> Sequence[str | None]:
    if len(stored) == 1:
        only = stored[0]
        if only.count == count and only.positions == range(count):
            return BundleIdRun(only.shard, only.id, count)
    ids: list[str | None] = [None] * count
    for planned in stored:
        for place, identity in planned.ids():
            ids[place] = str(identity)
    for place, holder in duplicates.items():
        ids[place] = holder
    return ids


def send_alone(context: QueueContext, send: Send) -> str:
    """Store one message; returns its id, or raises the error that kept it from being stored."""
    written = store_sends(context, plan_sends(context, (send,)))
    if context.hooks is not None:
        report_stored(context, written)
    error = written.error
    if error is not None:
        if isinstance(error, OutcomeUnknown):
            error.unsent = tuple([each for _, each in written.unsent()])
        raise error
    (identity,) = written.ids
    assert identity is not None
    return identity


def send_once(context: QueueContext, message: OutgoingMessage, key: str) -> str:
    """Store a message of bytes unless one was sent under the key within 7 days; returns the id of that or of this one.

    It is for messages that shardq sends automatically: users have dedupe keys, for the time that the queue sets.
    Raises the errors of sends.
    """
    options = msgspec.structs.replace(prepare_options(message, context.name), dedupe_key=ONCE + key)
    return send_alone(context, prepare(context, message, message.body, options, BYTES))


def joined_sends(
    context: QueueContext, *, linger: float, limit: int, max_bytes: int
) -> GroupCommit[Send, str]:
    """Return what stores single messages: alone, or up to ``limit`` messages and ``max_bytes`` together."""
    return GroupCommit(
        partial(send_alone, context),
        partial(_send_several, context),
        partial(_fitting, limit, max_bytes),
        linger=linger,
        enough=limit,
    )


def _fitting(limit: int, max_bytes: int, sends: Sequence[Send]) -> int:
    """Count how many of the first messages make a bundle."""
    count = size = 0
    while count < min(len(sends), limit) and (size < max_bytes or not count):
        size += len(sends[count].bodies[0])
        count += 1
    return count


def _send_several(context: QueueContext, sends: Sequence[Pending[Send, str]]) -> None:
    """Store the messages of several threads together, and give each caller its id or error.

    Planned messages may be stored even when this raises, so the errors carry their ids. If the store refuses them
    together, each is stored alone, so that no caller gets the error of another.
    """
    several = len(sends) > 1
    try:
        context.live.current()
        bundles = plan_sends(context, list(map(_ITEM, sends)))
    except Exception as error:
        if not several or (isinstance(error, ShardqError) and error.retryable):
            raise
        _send_each(context, sends)
        return
    is_refused = False
    try:
        written = store_sends(context, bundles)
        if context.hooks is not None:
            report_stored(context, written)
        is_refused = several and _is_refused(written)
        if not is_refused:
            _answer_callers(sends, written)
    except BaseException as error:
        _answer_callers(sends, Written.failed(bundles, error, {planned.id for planned in bundles}))
        raise
    if is_refused:
        _send_each(context, sends)
    elif written.error is not None and not isinstance(written.error, Exception):
        raise written.error


def _send_each(context: QueueContext, sends: Sequence[Pending[Send, str]]) -> None:
    for each in sends:
        try:
            _send_several(context, [each])
        except Exception as error:
            each.error = error


def _is_refused(written: Written) -> bool:
    """Return whether nothing was or may be stored, for a reason that need not be one of every message.

    A queue that has no room for all of them may have some for the first.
    """
    error = written.error
    is_told = isinstance(error, QueueFull) or (isinstance(error, ShardqError) and not error.retryable)
    return is_told and not any(written.ids)


def _answer_callers(sends: Sequence[Pending[Send, str]], written: Written) -> None:
    """Give each caller that has no answer yet its id, or the error that kept its message from being stored."""
    if written.error is not None:
        for place, message in written.unsent():
            if not sends[place].done:
                sends[place].error = for_another_thread(written.error, (message,))
    for send, identity in zip(sends, written.ids, strict=True):
        if not send.done:
            send.result = identity
