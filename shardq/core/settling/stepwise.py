"""Moves that take several steps: more bytes than a store takes in one request, or a store that has no such step.

A store that cannot ack in one shard and append to another in one step is asked for one after the other. Each message
becomes a separate bundle. The first attempt reserves a key of the target queue for the place of that bundle. A place
is an id, a shard, a due time and a priority. Later attempts find the key and store the bundle in that place, however
they claimed the messages. The copy carries the key, and a consumer is handed the copy only when the key is confirmed.
So an attempt that finds the key confirmed only has to ack the message. One that finds it unconfirmed knows that the
copy was not received. It checks whether an earlier attempt has stored it, and stores it if not. A stored copy stays as
it is, though a later attempt may have changed it otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import ParamSpec, TypeVar

import msgspec

from shardq.base.clock import microseconds
from shardq.base.log import Log
from shardq.base.outgoing_message import group_of, lane_of, stored_group
from shardq.base.receipt import MessageId
from shardq.base.shard import Shard
from shardq.core.context.queue_context import QueueContext
from shardq.core.context.retry import Answer
from shardq.core.held import HeldSlice, Selection
from shardq.core.sending.appending import AppendPolicy, append, moved_bundle
from shardq.core.sending.dedupe_keys import StoredPlace, place_of
from shardq.core.sending.planned_bundles import PlannedBundle, choose_shard, grouped_by_shard
from shardq.core.settling.dead_letters import original_group
from shardq.core.settling.events import EventDetails
from shardq.core.settling.operations import KEEP, SettleOperation
from shardq.core.settling.settle import settle, spans_of
from shardq.errors import OutcomeUnknown, RepeatTooLate, StoreUnavailable
from shardq.storage.bundles import BundleData, BundleKeys, bundle_ids_until, made_at
from shardq.storage.requests import Bundle, DedupeEntry, Fenced
from shardq.storage.writing import reporting_done

__all__ = ["Moved", "entries_of", "in_steps", "move_step_by_step"]

_log = Log(__name__)

P = ParamSpec("P")
T = TypeVar("T")

_MEMORY = 7 * 86_400_000_000
"""For how long, in microseconds, a move that was interrupted is recognised when it is made again."""

_PREFIX = "shardq-move:"
_PLACED = "@"  # ends the move key of a copy whose place is not that of its id alone
_ADDED_BYTES = 4096  # at most, to a message: the headers of a dead letter, and what a store keeps of a bundle


def in_steps(
    selections: Sequence[Selection], sizes: Callable[[Selection], Sequence[int]], most: int
) -> list[list[Selection]]:
    """Divide the messages into steps of up to ``most`` bytes, or of one message; ``sizes`` returns the bytes of each.

    A selection may be cut. The order stays.
    """
    steps: list[list[Selection]] = [[]]
    remaining = most
    for selection in selections:
        start = 0
        for number, size in enumerate(sizes(selection)):
            remaining -= size + _ADDED_BYTES
            if remaining < 0 and (steps[-1] or number > start):
                if number > start:
                    steps[-1].append(Selection(selection.held, selection.positions[start:number]))
                steps.append([])
                start, remaining = number, most - size - _ADDED_BYTES
        rest = Selection(selection.held, selection.positions[start:]) if start else selection
        steps[-1].append(rest)
    return steps


class Moved(msgspec.Struct, frozen=True):
    """The selected messages of one held slice, as they are to be in the target."""

    selection: Selection
    messages: BundleData
    bundle: Bundle  # what they have in common there
    delay: int = 0  # microseconds

    @property
    def is_placed(self) -> bool:
        """True when due time, priority or lane do not follow from their ids, so that their keys have to say it."""
        changed = self.delay > 0 or self.bundle.priority != self.selection.held.bundle.priority
        return changed or self.bundle.group != ""

    def group_at(self, place: StoredPlace) -> str:
        """Return the group of the copy in a place that an earlier attempt chose, maybe as a dead letter."""
        if not place.id.shard.is_grouped:
            return ""
        known = self.bundle.group or self.selection.held.bundle.group or original_group(self.selection)
        return stored_group(group_of(known) or "", place.lane)


def move_step_by_step(
    source: QueueContext,
    target: QueueContext,
    operation: SettleOperation,
    shard: Shard,
    moved: Sequence[Moved],
    details: EventDetails,
) -> Answer[Fenced]:
    """Extend the leases, store the messages in the target, ack them. If one of them is lost, nothing is stored.

    Events are recorded where they are stored.

    Raises OutcomeUnknown once a copy is stored, or may be; StoreUnavailable where they are in the source only.
    """
    assert operation.policy is not None
    spans = spans_of([each.selection for each in moved])
    lease = microseconds(source.settings.visibility_timeout)
    fenced = _before_the_ack(settle, source, KEEP, shard, spans, lease).value
    if fenced != Fenced():
        return Answer(fenced, after_unknown=False)
    stored: list[PlannedBundle] = []
    done = (
        f"messages may be in queue {target.name!r} as well as in {source.name!r}: repeat the call, which completes "
        "the move"
    )
    with reporting_done(lambda: done if stored else ""):
        _before_the_ack(_store, target, operation.policy, moved, details, stored)
        answer = settle(source, operation, shard, spans)
    if answer.value.lost and not answer.after_unknown:
        _log.warning(
            "messages of shard %s were moved after their lease was over: they are delivered here too", shard
        )
    return Answer(Fenced(), after_unknown=False)


def _before_the_ack(step: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Take a step before the ack. Also after an error the messages are still in the source, as they were."""
    try:
        return step(*args, **kwargs)
    except (OutcomeUnknown, RepeatTooLate) as error:
        raise StoreUnavailable(f"messages are still where they were: {error}") from error


def _entry_of_copy(move_key: str, identity: MessageId, bundle: Bundle) -> DedupeEntry:
    """Return the key that a stored copy carries, as it was reserved."""
    key = move_key.removesuffix(_PLACED)
    placed = key != move_key
    return DedupeEntry(key, msgspec.structs.replace(place_of(identity, bundle), placed=placed).text)


def entries_of(piece: HeldSlice, keys: BundleKeys) -> Iterator[DedupeEntry]:
    """Yield the dedupe keys and move keys of the messages, which are confirmed before the messages leave their ids."""
    if keys.move_key is not None:
        yield _entry_of_copy(keys.move_key, piece.message_id(0), piece.bundle)
    if keys.dedupe_keys is not None:
        for position, key in enumerate(keys.dedupe_keys[piece.first : piece.first + piece.count]):
            if key is not None:
                yield DedupeEntry(key, place_of(piece.message_id(position), piece.bundle).text)


class _Copy(msgspec.Struct, frozen=True):
    """One message on its way: its key, what it is to be in the target, and what it has in common with others there."""

    key: str
    moved: Moved
    message: BundleData

    def at(self, policy: AppendPolicy, place: StoredPlace) -> PlannedBundle:
        """Plan the message in its place."""
        carried = msgspec.structs.replace(self.message, move_key=self.key + _PLACED * place.placed)
        common = msgspec.structs.replace(
            self.moved.bundle, priority=place.priority, group=self.moved.group_at(place)
        )
        return moved_bundle(
            policy,
            place.id.shard,
            carried,
            source=common,
            identity=place.id.bundle_id,
            due=place.due,
            key=self.key,
        )


def _store(
    target: QueueContext,
    policy: AppendPolicy,
    moved: Sequence[Moved],
    details: EventDetails,
    stored: list[PlannedBundle],
) -> None:
    """Store copies of the messages, each once, also when others do so; returns when all their keys are confirmed.

    Those that are stored, or may be when this fails, are added to ``stored``.
    """
    read_at = target.store.now()
    copies = [
        _Copy(_key(each.selection, position), each, each.messages.slice(number, 1))
        for each in moved
        for number, position in enumerate(each.selection.positions)
    ]
    offered = _offered(target, copies, read_at)
    current = target.retry(target.store.reserve_keys, target.name, offered, _MEMORY)
    unconfirmed = [entry for entry in current if not entry.confirmed]
    places = (StoredPlace.parse(entry.message_id, 0).id for entry in current)
    for each in moved:
        details.note(each.selection, islice(places, len(each.selection.positions)))
    missing: list[PlannedBundle] = []
    for copy, entry, own in zip(copies, current, offered, strict=True):
        place = StoredPlace.parse(entry.message_id, copy.moved.selection.held.bundle.priority)
        is_missing = not entry.confirmed and (entry == own or not _is_stored(target, place.id))
        (missing if is_missing else stored).append(copy.at(policy, place))
    for group in grouped_by_shard(missing):
        try:
            append(target, policy, group, keys_read_at=read_at)
        except OutcomeUnknown:
            stored += group
            raise
        stored += group
    if unconfirmed:
        target.retry(target.store.confirm_keys, target.name, unconfirmed)


def _offered(target: QueueContext, copies: Sequence[_Copy], now: int) -> list[DedupeEntry]:
    """Propose the places of the copies, if no earlier attempt has chosen others."""
    moved = copies[0].moved  # of one move all are delayed alike
    shard = choose_shard(target, now + moved.delay, len(copies), moved.bundle.group)
    ids = bundle_ids_until(now, len(copies))
    return [
        DedupeEntry(
            copy.key,
            StoredPlace(
                MessageId(shard, identity, 0),
                copy.moved.bundle.priority,
                made_at(identity) + copy.moved.delay,
                placed=copy.moved.is_placed,
                lane=lane_of(copy.moved.bundle.group),
            ).text,
        )
        for identity, copy in zip(ids, copies, strict=True)
    ]


def _is_stored(target: QueueContext, copy: MessageId) -> bool:
    found = target.retry(target.store.find, copy.shard, copy.bundle_id, copy.position)
    return found is not None


def _key(selection: Selection, position: int) -> str:
    return f"{_PREFIX}{selection.held.message_id(position)}"
