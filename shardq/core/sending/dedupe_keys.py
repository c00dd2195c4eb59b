"""Dedupe keys: a second message with the same key, within the queue's window, is not stored.

There are three steps. The producer reserves the key for the place of a message: its id, priority and due time. It
stores the message there. It confirms the key; a consumer confirms it too, before it is handed the message.

A key that is reserved but not confirmed belongs to a message that was not received: it is still stored, or never was.
The next producer with that key stores its message in the reserved place, and not in one that it would choose. The
store takes it only once. So a crash at any point neither loses nor duplicates a message, however late the key comes
again.

The window counts from the reservation. A producer trusts what it read of a key for some minutes only. If it stood
still for longer, another producer may have stored the message, and a consumer may have finished it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from shardq.base.clock import microseconds
from shardq.base.outgoing_message import group_of, lane_of, stored_group
from shardq.base.receipt import MessageId
from shardq.base.shard import group_shard
from shardq.core.context.queue_context import QueueContext
from shardq.core.sending.planned_bundles import PlannedBundle
from shardq.errors import InvalidMessage
from shardq.storage.bundles import made_at
from shardq.storage.requests import Bundle, DedupeEntry

__all__ = ["ONCE", "StoredPlace", "confirm", "place_of", "reserve"]

ONCE = "shardq-once:"
"""Begins the keys of what shardq itself sends once: they are remembered as those of moves are."""

_MEMORY = 7 * 86_400_000_000  # microseconds


class StoredPlace(msgspec.Struct, frozen=True):
    """Where a message is stored: its id, its due time and its priority.

    A ``placed`` one has all three in its text; else due time and priority follow from the id and what was copied. The
    ``lane`` is that of its group, which another number of lanes would change.
    """

    id: MessageId
    priority: int
    due: int
    placed: bool = True
    lane: int = 0

    @property
    def text(self) -> str:
        """The text that is stored under the key."""
        lane = f"@{self.lane}" if self.lane else ""
        return f"{self.id}@{self.priority}@{self.due}{lane}" if self.placed else str(self.id)

    @classmethod
    def parse(cls, text: str, priority: int) -> StoredPlace:
        """Read a place; a message without one has this priority, and is due at the moment of its id."""
        head, _, tail = text.rpartition(":")  # the name of the queue may have any of these signs
        position, *placed = tail.split("@")
        identity = MessageId.parse(f"{head}:{position}")
        if placed:
            priority, due, lane = (*map(int, placed), 0)[:3]
            return cls(identity, priority, due, lane=lane)
        return cls(identity, priority, made_at(identity.bundle_id), placed=False)


def place_of(identity: MessageId, bundle: Bundle) -> StoredPlace:
    """Return the present or future place of a message of a bundle."""
    return StoredPlace(identity, bundle.priority, bundle.due, lane=lane_of(bundle.group))


class Reservation(msgspec.Struct, frozen=True):
    """The bundles left to store, the entries to confirm afterwards, and the ids of messages that are there already.

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
    current = context.retry(context.store.reserve_keys, context.name, entries, window)
    stored = _stored(context, set(current) - set(entries))
    kept: list[PlannedBundle] = []
    duplicates: dict[int, str] = {}
    same_key: list[PlannedBundle] = []
    reserved = {entry.key: entry for entry in stored}
    rest = iter(current)
    for planned in bundles:
        if planned.key is None:
            kept.append(planned)
            continue
        entry = next(rest)
        place = StoredPlace.parse(entry.message_id, planned.priority)
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
    """Return the unconfirmed entries whose messages are stored: these may be received, and are not stored over."""
    waiting = [entry for entry in entries if not entry.confirmed]
    ids = [StoredPlace.parse(entry.message_id, 0).id for entry in waiting]
    found = [context.retry(context.store.find, each.shard, each.bundle_id, each.position) for each in ids]
    return {entry for entry, message in zip(waiting, found, strict=True) if message is not None}


def _place(planned: PlannedBundle) -> StoredPlace:
    return place_of(planned.message_id(0), planned)


def _at(planned: PlannedBundle, place: StoredPlace) -> PlannedBundle:
    """Move the message to the place that is stored under its key."""
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
