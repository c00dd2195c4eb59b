"""Bundles that are about to be stored: which messages share one, in which shard it is, and in which lane of a group.

Lanes are the parts of a group that may be worked on at once. In a queue with ``group_concurrency`` N the messages of a
group are spread over N lanes. For the store each lane is a separate group, in order, whose held messages belong to one
claim. So at most N messages of a group are worked on at once, and no store knows of it. The first lane has the group's
name, as all groups of other queues do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any
from zlib import crc32

import msgspec

from shardq.base.large_body import LargeBody
from shardq.base.outgoing_message import OutgoingMessage, RetryToken, group_of, lane_of, stored_group
from shardq.base.receipt import MessageId
from shardq.base.shard import Shard, group_shard
from shardq.base.texts import shown
from shardq.core.context.queue_context import QueueContext, QueueContexts
from shardq.core.sending.prepared import Send, expiry_of, prepare_options, size_of
from shardq.core.sharding.placement import LaneRoundRobin
from shardq.errors import InvalidMessage, UnsupportedByStore
from shardq.storage.bundles import BundleData, encode_bundle
from shardq.storage.requests import Bundle
from shardq.storage.store import Store

__all__ = [
    "PlannedBundle",
    "check_groups",
    "check_sends",
    "choose_shard",
    "grouped_by_shard",
    "in_lanes",
    "lane_among",
    "lane_of_key",
    "parts_by_unique_key",
    "plan_bundle",
    "plan_bundles",
    "sizes",
]


_FIELDS = attrgetter(*Bundle.__struct_fields__)
_HEADERS, _DEDUPE_KEY = attrgetter("headers"), attrgetter("dedupe_key")


class PlannedBundle(Bundle, frozen=True, kw_only=True, gc=True):
    """A bundle before it is stored: the fields that the store keeps, and those that only its sender needs.

    The garbage collector tracks it: a message that was given may refer to the error of its send.
    """

    shard: Shard
    key: str | None = None  # of its only message: a dedupe key, or that of a move
    sends: Sequence[Send] = ()  # the messages that are sent with it
    places: Sequence[int] = ()  # theirs in the input
    positions: Sequence[int] = ()  # in the bundle, in which others may be when it is sent again
    again: bool = False  # it may be stored already
    unique_key: str | None = None  # of its only message
    large: LargeBody | None = None  # the same

    @classmethod
    def of(cls, shard: Shard, bundle: Bundle, **known: Any) -> PlannedBundle:
        """Plan to store a bundle in a shard."""
        return cls(*_FIELDS(bundle), shard=shard, **known)

    @property
    def attempt(self) -> RetryToken:
        """Return the bundle alone."""
        return RetryToken(Bundle(*_FIELDS(self)))

    @property
    def messages(self) -> int:
        """How many messages are sent with it."""
        return len(self.places) or self.count

    @property
    def has_key(self) -> bool:
        """True when it is stored only if its key is free."""
        return self.key is not None or self.unique_key is not None

    def ids(self) -> Iterator[tuple[int, MessageId]]:
        """Yield the place of each message in the input, and its id."""
        for place, position in zip(self.places, self.positions, strict=True):
            yield place, self.message_id(position)

    def message_id(self, position: int) -> MessageId:
        """Return the id of the message at a position of the bundle."""
        return MessageId(self.shard, self.id, position)

    def given(self) -> Iterator[tuple[Send, Any]]:
        """Yield each message as it was given, in the order of the places, with its options."""
        return ((send, item) for send in self.sends for item in send.items)


def choose_shard(context: QueueContext, due: int, messages: int, group: str = "") -> Shard:
    """Choose the shard for messages that are due at a moment in microseconds; with a group, the group's.

    Raises UnsupportedByStore for a group where the store has none.
    """
    if not group:
        context.live.current()
        return context.placement.choose(context.live.layout, due, messages)
    check_groups(context.store, context.name, f"group={shown(group_of(group))}")
    return group_shard(context.name, group)


def check_groups(store: Store, queue: str, wanted: str) -> None:
    """Raise UnsupportedByStore where the store has no groups, naming what needs one."""
    if not store.capabilities.groups:
        raise UnsupportedByStore(
            f"{wanted}: the store of queue {queue!r} keeps no order within groups: "
            "use SQLite, PostgreSQL, Cassandra, or a replica set of MongoDB (one member will do), or a queue of one "
            "shard with one consumer"
        )


def check_sends(contexts: QueueContexts, queue: str, messages: Iterable[OutgoingMessage]) -> None:
    """Raise the errors of the options of messages, for a queue that need not exist.

    Raises InvalidMessage. For a group it raises UnsupportedByStore where the store has none, and StoreUnavailable.
    """
    for each in messages:
        if group := prepare_options(each, queue).group:
            if not contexts.store.capabilities.groups:
                contexts.retry(contexts.store.ping)  # which tells a replica set
            check_groups(contexts.store, queue, f"group={shown(group)}")


def grouped_by_shard(bundles: Iterable[PlannedBundle]) -> list[list[PlannedBundle]]:
    """Group the bundles by shard, in their order."""
    groups: dict[Shard, list[PlannedBundle]] = {}
    for planned in bundles:
        groups.setdefault(planned.shard, []).append(planned)
    return list(groups.values())


def parts_by_unique_key(bundles: Sequence[PlannedBundle]) -> Iterator[tuple[bool, list[PlannedBundle]]]:
    """Separate bundles with and without a unique key: in two parts, or in turns where groups keep their order."""
    in_turns = any(planned.group for planned in bundles)
    ordered = bundles if in_turns else sorted(bundles, key=_has_unique_key)
    for is_unique, part in groupby(ordered, _has_unique_key):
        yield is_unique, list(part)


def _has_unique_key(planned: PlannedBundle) -> bool:
    return planned.unique_key is not None


def sizes(messages: BundleData) -> list[int]:
    """Return the bytes of each message, as they count towards the limit."""
    if messages.headers is None:
        return [len(body) for body in messages.bodies]
    return [
        len(body) + size_of(headers) for body, headers in zip(messages.bodies, messages.headers, strict=True)
    ]


def plan_bundles(context: QueueContext, sends: Sequence[Send], now: int) -> list[PlannedBundle]:
    """Plan bundles of messages that share group, priority, due time and ttl. Each send has one message.

    Messages with a key or a large body have separate bundles; messages after one do not join a bundle from before it.
    Nor is a message of a group, when one of the group in between is in another bundle. Messages that have an id
    already go back into the bundle that the id names.
    """
    bundles: dict[object, list[int]] = {}
    ended: Counter[object] = Counter()  # bundles that nothing more may join, by group or time
    times: dict[str, object] = {}  # of the last message of each group
    for place, send in enumerate(sends):
        time = (send.priority, send.moment(now), send.ttl)
        line = send.group or time
        has_key = send.dedupe_key is not None or send.unique_key is not None
        alone = (has_key or send.large is not None) and send.id is None
        if alone or (send.group and (send.id or times.get(send.group, time) != time)):
            ended[line] += 1
        times[send.group] = time
        if send.id is not None:
            bundle: object = (send.id.shard, send.id.bundle_id)
        else:
            bundle = place if alone else (line, ended[line])
        bundles.setdefault(bundle, []).append(place)
    return [
        plan_bundle(context, [sends[place] for place in places], places, now) for places in bundles.values()
    ]


def plan_bundle(
    context: QueueContext, sends: Sequence[Send], places: Sequence[int], now: int
) -> PlannedBundle:
    """Plan one bundle of all messages of one send, or of several with one message each."""
    first, count = sends[0], len(places)
    if len(sends) == 1:
        bodies = first.bodies
        headers = [first.headers] * count if first.headers else None
        keys = None if first.dedupe_key is None else [first.dedupe_key]
    else:
        bodies = [send.bodies[0] for send in sends]
        headers, keys = list(map(_HEADERS, sends)), list(map(_DEDUPE_KEY, sends))
        headers, keys = headers if any(headers) else None, keys if any(keys) else None
    if first.id is not None:
        positions = [send.id.position for send in sends if send.id is not None]
        if first.attempt is not None:
            return PlannedBundle.of(
                first.id.shard,
                first.attempt.bundle,
                sends=sends,
                places=places,
                positions=positions,
                again=True,
            )
        shard, identity, due = _place_of_before(context, first, positions, now)
    else:
        # The same due time for all of a call, so that their ids decide on their order.
        due = now + first.delay if first.due is None else max(now, first.due)
        if first.group:
            shard = choose_shard(context, due, count, first.group)
        else:
            shard = context.placement.choose(context.live.layout, due, count)
        identity = context.ids.new(now)
    return PlannedBundle(
        identity,
        first.priority,
        due,
        now,
        count,
        encode_bundle(BundleData(bodies, headers, keys, unique_key=first.unique_key, large=first.large)),
        None if first.ttl is None else expiry_of(due, first.ttl),
        first.group,
        shard=shard,
        key=first.dedupe_key,
        sends=sends,
        places=places,
        positions=range(count),
        again=first.id is not None,
        unique_key=first.unique_key,
        large=first.large,
    )


def _place_of_before(
    context: QueueContext, options: Send, positions: list[int], now: int
) -> tuple[Shard, bytes, int]:
    """Return the shard, the id and the due time of the bundle that messages were in when they were sent before."""
    identity = options.id
    assert identity is not None
    if positions != list(range(len(positions))):
        raise InvalidMessage(
            f"message {identity} comes without its neighbours: send everything in `error.unsent`, in its order"
        )
    grouped = options.group or identity.shard.is_grouped
    if grouped and identity.shard != choose_shard(context, now, 1, options.group):
        raise InvalidMessage(
            f"message {identity} was not sent with group={group_of(options.group)!r}: send it as it was"
        )
    if options.due is None:
        raise InvalidMessage(
            f"message {identity} comes without its due time: send what is in `error.unsent` as it is there"
        )
    return identity.shard, identity.bundle_id, options.due


def in_lanes(sends: Sequence[Send], lanes: int, round_robin: LaneRoundRobin) -> list[Send]:
    """Return the messages, one by one, with their lanes as groups.

    They follow each other round the lanes of their group. One with a key is always in the same lane, so that
    it is recognised when it is sent again. One that has an id was sent before, and its group names the lane.
    """
    return [_in_lane(each, lanes, round_robin) for send in sends for each in send.each()]


def lane_among(group: str, lanes: int) -> str:
    """Return the group of a moved message in a queue with ``lanes`` lanes: its lane is the remainder of the old one.

    So messages of one lane stay in one lane, and there are no more lanes than the queue has.
    """
    return stored_group(group_of(group) or "", lane_of(group) % lanes)


def lane_of_key(key: str, lanes: int) -> int:
    """Return the lane of a message with a key, whichever way it is sent."""
    return crc32(key.encode()) % lanes


def _in_lane(send: Send, lanes: int, round_robin: LaneRoundRobin) -> Send:
    if not send.group or send.id is not None:
        return send
    key = send.unique_key or send.dedupe_key
    number = lane_of_key(key, lanes) if key else round_robin.next(send.group, lanes)
    return msgspec.structs.replace(send, group=stored_group(send.group, number))
