"""Dedupe keys: a second message with the same key, within the queue's window, is not stored.

The key is reserved for a message's id, the message is stored under that id, the key is confirmed: by the producer, or
by the consumer who is about to be handed the message. A key that was reserved and not confirmed belongs to a message
that is stored still, or was never: whoever comes next with the key stores the message under the reserved id, which the
store takes once only. So a crash at any point loses nothing and duplicates nothing, however late the key comes again.

The window counts from the reservation. What a producer found of a key it goes by for some minutes only: if it stood
still for longer, the message may have been stored by another one, worked, and forgotten by the store.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from shardq.clock import microseconds
from shardq.context.queue_context import QueueContext
from shardq.receipt import MessageId
from shardq.sending.planned_bundles import PlannedBundle
from shardq.storage.bundle_id import made_at
from shardq.storage.requests import DedupeEntry

__all__ = ["Reservation", "confirm", "reserve"]


class Reservation(msgspec.Struct, frozen=True):
    """What is left to store, the entries to confirm afterwards, and the ids of messages that are there already.

    ``twins`` have the key of one of the bundles: when that is stored, they are duplicates of it.
    """

    bundles: list[PlannedBundle]
    reserved: tuple[DedupeEntry, ...]
    duplicates: dict[int, str]  # place in the input -> id of the message that has the key
    read_at: int = 0  # not later than the keys were found to be as they are here
    twins: tuple[PlannedBundle, ...] = ()


def reserve(context: QueueContext, bundles: Sequence[PlannedBundle]) -> Reservation:
    """Reserve the keys of all bundles that have one, and sort out the duplicates."""
    keyed = [(planned, planned.key) for planned in bundles if planned.key is not None]
    if not keyed:
        return Reservation(list(bundles), (), {})
    entries = [DedupeEntry(key, str(planned.message_id(0))) for planned, key in keyed]
    window = microseconds(context.settings.dedupe_window)
    read_at = context.store.now()
    standing = context.retry(context.store.reserve_keys, context.name, entries, window)
    kept = [planned for planned in bundles if planned.key is None]
    duplicates: dict[int, str] = {}
    twins: list[PlannedBundle] = []
    reserved: dict[str, DedupeEntry] = {}
    for (planned, _), entry in zip(keyed, standing, strict=True):
        if entry.confirmed:
            duplicates[planned.places[0]] = entry.message_id
        elif entry.key in reserved:
            twins.append(planned)
        else:
            reserved[entry.key] = entry
            kept.append(_under(planned, MessageId.parse(entry.message_id)))
    return Reservation(kept, tuple(reserved.values()), duplicates, read_at, tuple(twins))


def confirm(context: QueueContext, reservation: Reservation) -> None:
    """Mark the reserved keys' messages as stored."""
    if reservation.reserved:
        context.retry(context.store.confirm_keys, context.name, reservation.reserved)


def _under(planned: PlannedBundle, identity: MessageId) -> PlannedBundle:
    bundle = planned.bundle
    due = bundle.due if planned.delay is None else made_at(identity.bundle_id) + planned.delay
    bundle = msgspec.structs.replace(bundle, id=identity.bundle_id, due=due)
    return msgspec.structs.replace(planned, shard=identity.shard, bundle=bundle)
