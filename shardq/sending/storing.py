"""Storing what is sent: plan the bundles, reserve dedupe keys, append shard by shard, and tell what is stored."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, overload

import msgspec

from shardq.clock import to_datetime
from shardq.codec import BYTES, Codec
from shardq.context.queue_context import QueueContext
from shardq.errors import OutcomeUnknown, ShardqError
from shardq.large.body import LargeBody
from shardq.outgoing_message import OutgoingMessage
from shardq.receipt import MessageId
from shardq.sending.doors import SEND, admit, append, check_age
from shardq.sending.lanes import in_lanes
from shardq.sending.planned_bundles import (
    PlannedBundle,
    Reservation,
    confirm,
    grouped_by_shard,
    parts_by_unique_key,
    plan_bundle,
    plan_bundles,
    reserve,
)
from shardq.sending.prepared import Send, size_of
from shardq.sending.unique_sends import UniqueSend
from shardq.sharding.shard import Shard
from shardq.storage.bundle_id import made_at

__all__ = [
    "BundleIdRun",
    "SentIds",
    "Written",
    "count_of",
    "plan_sends",
    "prepare",
    "store_sends",
    "tell_stored",
    "unsent",
]

_UNIQUE_KEY = attrgetter("unique_key")


class _MadeIds(Sequence[str]):
    """Ids that are made when they are asked for."""

    __slots__ = ()

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self._at(position) for position in range(len(self))[index]]
        return self._at(range(len(self))[index])

    def __iter__(self) -> Iterator[str]:
        return map(self._at, range(len(self)))

    @abstractmethod
    def _at(self, position: int) -> str:
        """The id at a position, which is in range."""


class BundleIdRun(_MadeIds):
    """The ids of a bundle's messages, in order."""

    __slots__ = ("_bundle_id", "_count", "_shard")

    def __init__(self, shard: Shard, bundle_id: bytes, count: int) -> None:
        self._shard, self._bundle_id, self._count = shard, bundle_id, count

    def __len__(self) -> int:
        return self._count

    def _at(self, position: int) -> str:
        return str(MessageId(self._shard, self._bundle_id, position))


class SentIds(_MadeIds):
    """The ids of the messages of a bulk send, in the order in which they were given.

    A sequence that makes each id when it is asked for: a million messages take about a hundred kilobytes.
    """

    def __init__(self) -> None:
        self._runs: list[Sequence[str]] = []
        self._starts: list[int] = []
        self._length = 0

    def extend(self, run: Sequence[str]) -> None:
        """Add the ids of further messages."""
        if count := len(run):
            self._runs.append(run)
            self._starts.append(self._length)
            self._length += count

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[str]:
        for run in self._runs:
            yield from run

    def _at(self, position: int) -> str:
        run = bisect_right(self._starts, position) - 1
        return self._runs[run][position - self._starts[run]]

    def __repr__(self) -> str:
        return f"<SentIds of {self._length} messages>"


def count_of(bundles: Iterable[PlannedBundle]) -> int:
    """How many messages are sent with them."""
    return sum(len(planned.places) for planned in bundles)


class Written(msgspec.Struct, frozen=True):
    """The result of storing messages: their ids by place, and the error that stopped it, if any."""

    ids: Sequence[str | None]  # None: not confirmed
    error: BaseException | None = None
    pending: tuple[PlannedBundle, ...] = ()  # the bundles that were not confirmed
    doubtful: Collection[bytes] = ()  # those of them, by id, that may be stored all the same

    @property
    def stored(self) -> Sequence[str]:
        """The ids of what is stored, in order."""
        if self.error is None:  # not copied: an id may be made only when it is asked for
            return self.ids  # type: ignore[return-value]
        return [identity for identity in self.ids if identity is not None]


def prepare(context: QueueContext, item: Any, body: Any, options: Send, codec: Codec) -> Send:
    """Check a body alone, before it joins others; raises InvalidMessage, MessageTooLarge or QueuePaused."""
    large = body if isinstance(body, LargeBody) else None
    is_plain = type(body) is bytes and codec is BYTES
    encoded = body if is_plain else b"" if large is not None else codec.encode(body)
    size = len(encoded) if options.headers is None else len(encoded) + size_of(options.headers)
    live = context.live
    if live.timer() > live.read_again_at:
        live.refresh()
    if size > live.lets_in:
        admit(context, SEND, size)
    return msgspec.structs.replace(options, items=(item,), bodies=(encoded,), large=large)


def plan_sends(context: QueueContext, sends: Sequence[Send]) -> list[PlannedBundle]:
    """Choose the shard and the id of each message, and call ``before_send``; raises QueuePaused or RepeatTooLate.

    Several sends have one message each. The caller has just looked at the settings. A pause is asked for before a hook
    is told; the door asks in any case.

    Bundles are stored in the order of their plans where each is stored before the next one is.
    """
    if context.hooks is not None:
        admit(context, SEND)
    lanes = context.live.known.group_concurrency
    if lanes > 1:
        sends = in_lanes(sends, lanes, context.lane_turns)
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


def store_sends(context: QueueContext, bundles: Sequence[PlannedBundle]) -> Written:
    """Store all that was planned together; returns when the store has confirmed it, or could not.

    An error is in the answer, not raised, whatever its kind.
    """
    first = bundles[0]
    if any(map(_UNIQUE_KEY, bundles)):
        return _store_unique(context, bundles)
    if len(bundles) > 1 or first.key is not None:
        return _store(context, bundles, count_of(bundles))
    count = len(first.places)
    try:
        append(context, SEND, bundles)
    except BaseException as error:
        return Written([None] * count, error, tuple(bundles), _doubtful(bundles, error))
    if count == 1:
        return Written([str(MessageId(first.shard, first.id, first.positions[0]))])
    return Written(_ids(bundles, {}, count))


def _store(context: QueueContext, bundles: Sequence[PlannedBundle], count: int) -> Written:
    """Store bundles of a send of so many messages, of which some may have a dedupe key."""
    doubtful = {planned.id for planned in bundles if planned.again}
    try:
        reservation = reserve(context, bundles)
    except BaseException as error:
        return Written([None] * count, error, tuple(bundles), doubtful)
    stored: list[PlannedBundle] = []
    failure = _append(context, reservation.bundles, reservation.read_at, stored, doubtful)
    if failure is None:
        failure = _confirm(context, reservation)
    holders = {planned.key: str(planned.message_id(0)) for planned in stored if planned.key is not None}
    repeated = {
        planned.places[0]: holders[planned.key] for planned in reservation.same_key if planned.key in holders
    }
    duplicates = reservation.duplicates | repeated
    if duplicates:
        context.counters.add(deduplicated=len(duplicates))
    done = {planned.id for planned in stored}
    pending = [planned for planned in reservation.bundles if planned.id not in done]
    pending += [planned for planned in reservation.same_key if planned.places[0] not in repeated]
    return Written(_ids(stored, duplicates, count), failure, tuple(pending), doubtful)


def _store_unique(context: QueueContext, bundles: Sequence[PlannedBundle]) -> Written:
    """Store bundles of which some have a unique key; nothing after the first error."""
    unique = UniqueSend(context)
    ids: list[str | None] = [None] * count_of(bundles)
    pending: list[PlannedBundle] = []
    doubtful: set[bytes] = set()
    for is_unique, part in parts_by_unique_key(bundles):
        if is_unique:
            unique.run(part)
        elif unique.error is not None:
            pending += part
            doubtful |= {planned.id for planned in part if planned.again}
        else:
            written = _store(context, part, len(ids))
            unique.error = written.error
            pending += written.pending
            doubtful.update(written.doubtful)
            ids = [identity or known for identity, known in zip(written.ids, ids, strict=True)]
    ids = [unique.ids.get(place, identity) for place, identity in enumerate(ids)]
    return Written(ids, unique.error, (*pending, *unique.pending), doubtful | unique.doubtful)


def tell_stored(context: QueueContext, bundles: Sequence[PlannedBundle], written: Written) -> None:
    """Call ``after_send`` for those of the messages that are stored."""
    if context.hooks is None:
        return
    pairs = zip(_described(bundles), written.ids, strict=True)
    if stored := [message for message, identity in pairs if identity is not None]:
        context.hooks.after_send(context.name, stored, written.stored)


def _described(bundles: Sequence[PlannedBundle]) -> list[OutgoingMessage]:
    """The messages as hooks see them, as they are in the input."""
    found = {
        place: send.described(item)
        for planned in bundles
        for place, (send, item) in zip(planned.places, planned.given(), strict=True)
    }
    return [found[place] for place in sorted(found)]


def unsent(written: Written) -> Iterator[tuple[int, OutgoingMessage]]:
    """The messages that were not confirmed, by place. One that may be stored has its id, to be sent again under it."""
    for planned in written.pending:
        doubtful = planned.id in written.doubtful
        attempt = planned.attempt if doubtful and planned.count > 1 else None
        for (place, identity), (send, item) in zip(planned.ids(), planned.given(), strict=True):
            message = msgspec.structs.replace(
                send.outgoing(item),
                priority=planned.priority,
                delay=0.0,
                due=to_datetime(planned.due),
                id=str(identity) if doubtful else None,
                attempt=attempt,
            )
            if doubtful:
                message = msgspec.structs.replace(message, group=planned.group or None)
            yield place, message


def _append(
    context: QueueContext,
    bundles: Sequence[PlannedBundle],
    read_at: int,
    stored: list[PlannedBundle],
    doubtful: set[bytes],
) -> BaseException | None:
    for group in grouped_by_shard(bundles):
        try:
            append(context, SEND, group, keys_read_at=read_at)
        except BaseException as error:
            doubtful |= _doubtful(group, error)
            return error
        stored.extend(group)
    return None


def _doubtful(bundles: Sequence[PlannedBundle], error: BaseException) -> set[bytes]:
    """Those bundles that may be stored although this kept them from being confirmed."""
    is_refused = isinstance(error, ShardqError) and not isinstance(error, OutcomeUnknown)
    return {planned.id for planned in bundles if planned.again or not is_refused}


def _confirm(context: QueueContext, reservation: Reservation) -> BaseException | None:
    try:
        confirm(context, reservation)
    except ShardqError:  # all is stored; whoever is handed the messages confirms their keys
        return None
    except BaseException as error:
        return error
    return None


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
