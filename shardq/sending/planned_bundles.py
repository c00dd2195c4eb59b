"""Bundles that are about to be stored, and their dedupe keys.

Dedupe keys: a second message with the same key, within the queue's window, is not stored.

There are three steps. The producer reserves the key for the place of a message: its id, priority and due time. It
stores the message there. It confirms the key; a consumer confirms it too, before it is handed the message.

A key that is reserved but not confirmed belongs to a message that nobody has received: it is still stored, or never
was. The next producer with that key stores its message in the reserved place, whatever place it would have chosen, and
the store takes it only once. So a crash at any point neither loses nor duplicates a message, however late the key
comes again.

The window counts from the reservation. A producer trusts what it read of a key for some minutes only. If it stood
still for longer, another producer may have stored the message, and a consumer may have finished it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

import msgspec

from shardq.clock import microseconds
from shardq.context.queue_context import QueueContext
from shardq.errors import InvalidMessage, UnsupportedByStore
from shardq.large.body import LargeBody
from shardq.outgoing_message import Attempt, group_of, stored_group
from shardq.receipt import MessageId
from shardq.sending.place import Place, place_of
from shardq.sending.prepared import Send, expiry_of, size_of
from shardq.sharding.shard import Shard, group_shard
from shardq.storage.bundle_data import BundleData, encode_bundle
from shardq.storage.requests import Bundle, DedupeEntry
from shardq.wording import shown

__all__ = [
    "ONCE",
    "PlannedBundle",
    "Reservation",
    "check_groups",
    "choose_shard",
    "confirm",
    "grouped_by_shard",
    "parts_by_unique_key",
    "plan_bundle",
    "plan_bundles",
    "reserve",
    "sizes",
]


ONCE = "shardq-once:"
"""Begins the keys of what shardq itself sends once: they are remembered as those of moves are."""

_MEMORY = 7 * 86_400_000_000  # microseconds
_HEADERS, _DEDUPE_KEY = attrgetter("headers"), attrgetter("dedupe_key")


class PlannedBundle(Bundle, frozen=True, kw_only=True):
    """A bundle that is about to be stored, as the store gets it, and what its sender has to know of it."""

    shard: Shard
    key: str | None = None  # of its only message: a dedupe key, or that of a move
    largest: int = 0  # bytes of its largest message; 0: their sizes were checked before
    sends: Sequence[Send] = ()  # the messages that are sent with it
    places: Sequence[int] = ()  # theirs in the input
    positions: Sequence[int] = ()  # in the bundle, in which others may be when it is sent again
    again: bool = False  # it may be stored already
    unique_key: str | None = None  # of its only message
    large: LargeBody | None = None  # the same

    @classmethod
    def of(cls, shard: Shard, bundle: Bundle, **known: Any) -> PlannedBundle:
        """A bundle that is to be stored in a shard."""
        return cls(*msgspec.structs.astuple(bundle), shard=shard, **known)

    @property
    def attempt(self) -> Attempt:
        """The bundle alone."""
        return Attempt(Bundle(*msgspec.structs.astuple(self)[: len(Bundle.__struct_fields__)]))

    @property
    def messages(self) -> int:
        """How many messages are sent with it."""
        return len(self.places) or self.count

    @property
    def has_key(self) -> bool:
        """True when it is stored only if its key is free."""
        return self.key is not None or self.unique_key is not None

    def ids(self) -> Iterator[tuple[int, MessageId]]:
        """Where each message was in the input, and its id."""
        for place, position in zip(self.places, self.positions, strict=True):
            yield place, self.message_id(position)

    def message_id(self, position: int) -> MessageId:
        """The id of the message at a position of the bundle."""
        return MessageId(self.shard, self.id, position)

    def given(self) -> Iterator[tuple[Send, Any]]:
        """Each message as it was given, in the order of the places, with its options."""
        return ((send, item) for send in self.sends for item in send.items)


def choose_shard(context: QueueContext, due: int, messages: int, group: str = "") -> Shard:
    """The shard for so many messages that are due at a moment in microseconds; with a group, the group's.

    Raises UnsupportedByStore for a group where the store has none.
    """
    if not group:
        context.live.current()
        return context.placement.choose(context.live.layout, due, messages)
    check_groups(context, f"group={shown(group_of(group))}")
    return group_shard(context.name, group)


def check_groups(context: QueueContext, wanted: str) -> None:
    """Raise UnsupportedByStore where the store has no groups, naming what needs one."""
    if not context.store.capabilities.groups:
        raise UnsupportedByStore(
            f"{wanted}: the store of queue {context.name!r} keeps no order within groups: "
            "use SQLite, Cassandra, or a replica set of MongoDB (one member will do), or a queue of one shard with one "
            "consumer"
        )


def grouped_by_shard(bundles: Iterable[PlannedBundle]) -> list[list[PlannedBundle]]:
    """The bundles of each shard together, in their order."""
    groups: dict[Shard, list[PlannedBundle]] = {}
    for planned in bundles:
        groups.setdefault(planned.shard, []).append(planned)
    return list(groups.values())


def parts_by_unique_key(bundles: Sequence[PlannedBundle]) -> Iterator[tuple[bool, list[PlannedBundle]]]:
    """Bundles with and without a unique key: apart, or in turns where groups have to keep their order."""
    in_turns = any(planned.group for planned in bundles)
    ordered = bundles if in_turns else sorted(bundles, key=_has_unique_key)
    for is_unique, part in groupby(ordered, _has_unique_key):
        yield is_unique, list(part)


def _has_unique_key(planned: PlannedBundle) -> bool:
    return planned.unique_key is not None


def sizes(messages: BundleData) -> list[int]:
    """The bytes of each message, as they count towards the limit."""
    if messages.headers is None:
        return [len(body) for body in messages.bodies]
    return [
        len(body) + size_of(headers) for body, headers in zip(messages.bodies, messages.headers, strict=True)
    ]


def plan_bundles(context: QueueContext, sends: Sequence[Send], now: int) -> list[PlannedBundle]:
    """Bundles of messages that share group, priority, due time and ttl. Each send has one message.

    Messages with a key or a large body are bundles of their own; what comes after one is not put into a bundle from
    before it. Nor is a message of a group, when one of the group in between is in another bundle. Messages that have an
    id already go back into the bundle that the id names.
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
    """The bundle of all messages of one send, or of several with one message each."""
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
        encode_bundle((bodies, headers, keys, None, first.unique_key, first.large)),
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
    """The shard, the id and the due time of the bundle that messages were in when they were sent before."""
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


class Reservation(msgspec.Struct, frozen=True):
    """What is left to store, the entries to confirm afterwards, and the ids of messages that are there already.

    ``same_key`` have the key of one of the bundles: when that is stored, they are duplicates of it.
    """

    bundles: list[PlannedBundle]
    reserved: tuple[DedupeEntry, ...]
    duplicates: dict[int, str]  # place in the input -> id of the message that has the key
    read_at: int = 0  # not later than the keys were found to be as they are here
    same_key: tuple[PlannedBundle, ...] = ()


def reserve(context: QueueContext, bundles: Sequence[PlannedBundle]) -> Reservation:
    """Reserve the keys of all bundles that have one, and sort out the duplicates."""
    entries = [
        DedupeEntry(planned.key, _place(planned).text) for planned in bundles if planned.key is not None
    ]
    if not entries:
        return Reservation(list(bundles), (), {})
    window = _window(context, entries)
    read_at = context.store.now()
    standing = context.retry(context.store.reserve_keys, context.name, entries, window)
    stored = _stored(context, set(standing) - set(entries))
    kept: list[PlannedBundle] = []
    duplicates: dict[int, str] = {}
    same_key: list[PlannedBundle] = []
    reserved = {entry.key: entry for entry in stored}
    rest = iter(standing)
    for planned in bundles:
        if planned.key is None:
            kept.append(planned)
            continue
        entry = next(rest)
        place = Place.parse(entry.message_id, planned.priority)
        if entry.confirmed or entry in stored:
            duplicates[planned.places[0]] = str(place.id)
        elif entry.key in reserved:
            same_key.append(planned)
        else:
            reserved[entry.key] = entry
            kept.append(_at(planned, place))
    return Reservation(kept, tuple(reserved.values()), duplicates, read_at, tuple(same_key))


def _window(context: QueueContext, entries: Iterable[DedupeEntry]) -> int:
    window = microseconds(context.settings.dedupe_window)
    return max(window, _MEMORY) if any(entry.key.startswith(ONCE) for entry in entries) else window


def confirm(context: QueueContext, reservation: Reservation) -> None:
    """Mark the reserved keys' messages as stored."""
    if reservation.reserved:
        context.retry(context.store.confirm_keys, context.name, reservation.reserved)


def _stored(context: QueueContext, entries: Iterable[DedupeEntry]) -> set[DedupeEntry]:
    """Those of the unconfirmed entries whose messages are stored: nothing is stored over what may be received now."""
    waiting = [entry for entry in entries if not entry.confirmed]
    ids = [Place.parse(entry.message_id, 0).id for entry in waiting]
    found = [context.retry(context.store.find, each.shard, each.bundle_id, each.position) for each in ids]
    return {entry for entry, message in zip(waiting, found, strict=True) if message is not None}


def _place(planned: PlannedBundle) -> Place:
    return place_of(planned.message_id(0), planned)


def _at(planned: PlannedBundle, place: Place) -> PlannedBundle:
    """The message in the place that stands under its key."""
    if place == _place(planned):
        return planned
    shard = place.id.shard
    group = stored_group(group_of(planned.group) or "", place.lane)
    if (group or shard.is_grouped) and not (group and shard == group_shard(shard.queue, group)):
        raise InvalidMessage(
            f"dedupe_key={planned.key!r} was sent before with another group than {group_of(planned.group)!r}, and may "
            "be stored: send it with that group, or after the queue's dedupe_window"
        )
    return msgspec.structs.replace(
        planned, shard=shard, id=place.id.bundle_id, priority=place.priority, due=place.due, group=group
    )
