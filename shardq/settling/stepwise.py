"""Moving messages between shards of a store that cannot ack in one and append to another in one step.

Each message becomes a bundle of its own. The first attempt reserves a key of the target queue for the id of that
bundle, which also decides its shard and due time. Later attempts find the key and store the same bundle again, however
the messages were claimed then. The copy carries the key, and a consumer is handed the copy only when the key is
confirmed. So an attempt that finds the key confirmed only has to ack the message. One that finds it unconfirmed knows
that nobody has received the copy, and stores it again, which changes nothing where it is stored.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

import msgspec

from shardq.clock import microseconds
from shardq.context.queue_context import QueueContext
from shardq.context.retry import Answer
from shardq.errors import OutcomeUnknown, RepeatTooLate, StoreUnavailable
from shardq.held import Selection
from shardq.receipt import MessageId
from shardq.sending.doors import Door, append, moved_bundle
from shardq.sending.planned_bundles import PlannedBundle, choose_shard, grouped_by_shard
from shardq.settling.settle import settle, spans_of
from shardq.settling.verbs import KEEP, Verb
from shardq.sharding.shard import Shard
from shardq.storage.bundle_data import BundleData
from shardq.storage.bundle_id import bundle_ids_until, made_at
from shardq.storage.requests import Bundle, DedupeEntry, Fenced

__all__ = ["Moved", "move_step_by_step"]

_log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

_MEMORY = 7 * 86_400_000_000
"""For how long, in microseconds, a move that was interrupted is recognised when it is made again."""

_PREFIX = "shardq-move:"


class Moved(msgspec.Struct, frozen=True):
    """What is selected of one held slice, and its messages as they are to be in the target."""

    selection: Selection
    messages: BundleData


def move_step_by_step(
    source: QueueContext, target: QueueContext, verb: Verb, shard: Shard, moved: Sequence[Moved]
) -> Answer[Fenced]:
    """Extend the leases, store the messages in the target, ack them. If one of them is lost, nothing is stored.

    Raises OutcomeUnknown only where the ack is in doubt; StoreUnavailable where they are still in the source.
    """
    assert verb.door is not None
    spans = spans_of([each.selection for each in moved])
    lease = microseconds(source.settings.visibility_timeout)
    fenced = _before_the_ack(settle, source, KEEP, shard, spans, lease).value
    if fenced != Fenced():
        return Answer(fenced, after_unknown=False)
    _before_the_ack(_store, target, verb.door, moved)
    answer = settle(source, verb, shard, spans)
    if answer.value.lost and not answer.after_unknown:
        _log.warning(
            "messages of shard %s were moved after their lease was over: they are delivered here too", shard
        )
    return Answer(Fenced(), after_unknown=False)


def _before_the_ack(step: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Take a step before the ack. Whatever becomes of it, the messages are still in the source."""
    try:
        return step(*args, **kwargs)
    except (OutcomeUnknown, RepeatTooLate) as error:
        raise StoreUnavailable(f"messages were not moved, and are still where they were: {error}") from error


def _store(target: QueueContext, door: Door, moved: Sequence[Moved]) -> None:
    """Store copies of the messages, each once, whoever else does so; returns when all their keys are confirmed."""
    read_at = target.store.now()
    copies = _reserved(target, door, moved, read_at)
    for group in grouped_by_shard(copies.values()):
        append(target, door, group, keys_read_at=read_at)
    if copies:
        target.retry(target.store.confirm_keys, target.name, list(copies))


def _reserved(
    target: QueueContext, door: Door, moved: Sequence[Moved], now: int
) -> dict[DedupeEntry, PlannedBundle]:
    """The messages whose keys are not confirmed, each under the id that its first attempt chose."""
    messages = [
        (_key(each.selection, position), each.selection.held.bundle, each.messages.slice(number, 1))
        for each in moved
        for number, position in enumerate(each.selection.positions)
    ]
    shard = choose_shard(target, now, len(messages))
    ids = bundle_ids_until(now, len(messages))
    offered = [
        DedupeEntry(key, str(MessageId(shard, identity, 0)))
        for identity, (key, _, _) in zip(ids, messages, strict=True)
    ]
    standing = target.retry(target.store.reserve_keys, target.name, offered, _MEMORY)
    return {
        entry: _copy(door, entry, source, data)
        for entry, (_, source, data) in zip(standing, messages, strict=True)
        if not entry.confirmed
    }


def _copy(door: Door, entry: DedupeEntry, source: Bundle, message: BundleData) -> PlannedBundle:
    """One message as it is to be in the target."""
    place = MessageId.parse(entry.message_id)
    keyed = msgspec.structs.replace(message, move_key=entry.key)
    bundle = moved_bundle(door, source, place.bundle_id, made_at(place.bundle_id), keyed)
    return PlannedBundle(place.shard, bundle, entry.key)


def _key(selection: Selection, position: int) -> str:
    return f"{_PREFIX}{selection.held.message_id(position)}"
