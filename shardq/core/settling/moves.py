"""Moving held messages: to another queue, to the dead-letter queue, or back into their shard with another body.

A move acks here and sends there. Stores do it in one atomic step where they can. Where they cannot, it is sent first.
A crash in between leaves the message in both places, and repeating the move completes it instead of sending again. A
message keeps its ``enqueued_at`` wherever it is moved.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from shardq.base.clock import microseconds
from shardq.base.outgoing_message import Headers
from shardq.base.receipt import MessageId
from shardq.base.shard import Shard, group_shard
from shardq.core.context.decision_log import DecisionLog
from shardq.core.context.queue_context import QueueContext
from shardq.core.context.retry import Answer
from shardq.core.context.unique_keys import Holder, UniqueKeys
from shardq.core.held import Selection
from shardq.core.sending.appending import admit, admitted, moved_bundle, obeying_bounds
from shardq.core.sending.planned_bundles import PlannedBundle, choose_shard, lane_among, sizes
from shardq.core.settling.dead_letters import (
    dead_letter_context,
    dead_letter_headers,
    original_group,
    original_headers,
)
from shardq.core.settling.events import EventDetails
from shardq.core.settling.operations import DEAD_LETTER, FORWARD, REDRIVE, REPLACE, UNBLOCK, SettleOperation
from shardq.core.settling.settle import settle, spans_of
from shardq.core.settling.stepwise import Moved, in_steps, move_step_by_step
from shardq.errors import InvalidMessage, OutcomeUnknown, UnsupportedByStore
from shardq.storage.bundles import BundleData, derive_bundle_id, repeatable_bundle_id
from shardq.storage.requests import Fenced
from shardq.storage.writing import optional

__all__ = ["BackToSource", "Changes", "DeadLetters", "Move", "ToQueue", "Unblock", "WithBody", "unmarked"]


_PREFIX = "shardq-unblocked:"
_REMEMBERED = 900_000_000  # microseconds: for so long those that redrive a message know of each other


class Changes(msgspec.Struct, frozen=True):
    """Changes of messages on their way. None leaves a part as it is."""

    body: bytes | None = None
    headers: Headers | None = None  # empty: they have none any more
    priority: int | None = None
    delay: int = 0  # microseconds

    def made_in(self, messages: BundleData) -> BundleData:
        """Return the messages with the other body and headers."""
        if self.body is not None:
            bodies = [self.body] * len(messages.bodies)
            messages = msgspec.structs.replace(messages, bodies=bodies, large=None)
        if self.headers is not None:
            headers = [self.headers] * len(messages.bodies) if self.headers else None
            messages = msgspec.structs.replace(messages, headers=headers)
        return messages


UNCHANGED = Changes()


class Move:
    """The targets of moved messages, and their changes on the way."""

    def __init__(
        self,
        source: QueueContext,
        target: QueueContext,
        operation: SettleOperation,
        changes: Changes = UNCHANGED,
    ) -> None:
        self._source, self._target, self.operation, self._changes = source, target, operation, changes
        self._lanes = target.settings.group_concurrency  # the same for all, whoever changes it meanwhile
        self.details = EventDetails(source=source, target=target)
        assert operation.policy is not None
        self._policy = operation.policy

    def parts(self, selections: Sequence[Selection]) -> list[list[list[Selection]]]:
        """Return the steps, in order, for each shard of groups in the target, and for messages without a group."""
        found: dict[Shard | None, list[Selection]] = {}
        for selection in selections:
            group = self.group(selection)
            found.setdefault(group_shard(self._target.name, group) if group else None, []).append(selection)
        return list(map(self._steps, found.values()))

    def _steps(self, selections: Sequence[Selection]) -> list[list[Selection]]:
        return in_steps(selections, self._sizes, self._source.store.capabilities.max_forward_bytes)

    def _sizes(self, selection: Selection) -> Sequence[int]:
        """Return the bytes of each message with its changes; those of a damaged one do not matter."""
        try:
            return sizes(self._changes.made_in(_chosen(selection)))
        except InvalidMessage:
            return [0] * len(selection.positions)

    def carry_out(self, shard: Shard, group: Sequence[Selection]) -> Answer[Fenced]:
        """Move selected messages of one shard and one part, all or none.

        Raises QueuePaused, QueueFull or MessageTooLarge.
        """
        moved = [self._moved(selection) for selection in group]
        admit(self._target, self._policy, max(size for each in moved for size in sizes(each.messages)))
        if not self._in_one_step:
            return move_step_by_step(self._source, self._target, self.operation, shard, moved, self.details)
        planned = self.planned(moved)
        try:
            append = admitted(self._target, self._policy, planned)
            with obeying_bounds(self._target, self._policy, planned):
                answer = settle(self._source, self.operation, shard, spans_of(group), append=append)
        except OutcomeUnknown:
            self._note(moved, planned, sure=False)
            raise
        if answer.value == Fenced() or answer.after_unknown:
            self._note(moved, planned, sure=answer.value == Fenced())
        return answer

    def _note(self, moved: Sequence[Moved], planned: Sequence[PlannedBundle], *, sure: bool) -> None:
        """Note where messages are now, or may be after an attempt that was not answered."""
        for each, bundle in zip(moved, planned, strict=True):
            self.details.note_bundle(each.selection, bundle.message_id(0), sure=sure)

    def changed(self, selection: Selection) -> BundleData:
        """Return the selected messages as they are to be in the target."""
        return self._changes.made_in(_chosen(selection))

    def planned(self, moved: Sequence[Moved]) -> list[PlannedBundle]:
        """Plan the bundles that they are to be in the target, all in one shard."""
        now = self._target.store.now()
        due = now + self._changes.delay
        count = sum(len(each.messages.bodies) for each in moved)
        place = choose_shard(self._target, due, count, moved[0].bundle.group)
        return [self._planned(place, each, self._target.ids.new(now), due) for each in moved]

    def _moved(self, selection: Selection) -> Moved:
        common = msgspec.structs.replace(selection.held.bundle, group=self.group(selection))
        if self._changes.priority is not None:
            common = msgspec.structs.replace(common, priority=self._changes.priority)
        return Moved(selection, self.changed(selection), common, self._changes.delay)

    def _planned(self, shard: Shard, moved: Moved, identity: bytes, due: int) -> PlannedBundle:
        return moved_bundle(
            self._policy, shard, moved.messages, source=moved.bundle, identity=identity, due=due
        )

    def group(self, selection: Selection) -> str:
        """Return the group in which they are to be in the target, in one of its lanes."""
        return lane_among(selection.held.bundle.group, self._lanes)

    @property
    def _in_one_step(self) -> bool:
        return self._source.store.capabilities.forward_across_shards


class InPlace(Move):
    """Back into the shard as new messages, which take the places of the old ones in their groups."""

    def __init__(
        self, source: QueueContext, operation: SettleOperation, changes: Changes = UNCHANGED
    ) -> None:
        super().__init__(source, source, operation, changes)

    def carry_out(self, shard: Shard, group: Sequence[Selection]) -> Answer[Fenced]:
        """Exchange the messages, neighbours for a bundle each. A unique key goes over to the new one."""
        group = [part for each in group for part in each.neighbours]
        keys = UniqueKeys(self._source)
        handed_on = [
            (each.held.unique_key, *self._old_and_new(each))
            for each in group
            if each.held.unique_key is not None
        ]
        for key, old, new in handed_on:
            keys.enter_incoming(key, old, new)
        answer = super().carry_out(shard, group)
        if handed_on and answer.value == Fenced():
            with optional():  # whoever comes by completes it
                keys.exchange_all([(key, Holder(old, new), Holder(new)) for key, old, new in handed_on])
        return answer

    def changed(self, selection: Selection) -> BundleData:
        """Return the messages as they are to be, with their unique key."""
        return msgspec.structs.replace(super().changed(selection), unique_key=selection.held.unique_key)

    def group(self, selection: Selection) -> str:
        """Return the group and the lane in which they are."""
        return selection.held.bundle.group

    def planned(self, moved: Sequence[Moved]) -> list[PlannedBundle]:
        """Plan bundles in the shard of the messages."""
        return [
            self._planned(each.selection.held.shard, each, self._new_id(each.selection), self.due(each))
            for each in moved
        ]

    def due(self, moved: Moved) -> int:  # noqa: ARG002
        """Return from when on they are delivered."""
        return self._source.store.now() + self._changes.delay

    def _steps(self, selections: Sequence[Selection]) -> list[list[Selection]]:
        """Return the last messages first: the exchange of one releases the messages behind it in its group."""
        return super()._steps(selections)[::-1]

    def _new_id(self, selection: Selection) -> bytes:
        """Derive the id of the bundle that replaces messages from their ids, so that a repetition finds the same."""
        return derive_bundle_id(selection.held.bundle.id, "replace", _positions(selection))

    def _old_and_new(self, selection: Selection) -> tuple[str, str]:
        """Return the ids of a message that is alone in its bundle, and of the one that takes its place."""
        old = selection.held.message_id(0)
        return str(old), str(MessageId(old.shard, self._new_id(selection), 0))

    @property
    def _in_one_step(self) -> bool:
        return True


class WithBody(InPlace):
    """With another body."""

    def __init__(self, source: QueueContext, body: bytes, delay: int, *, keeps_due: bool) -> None:
        super().__init__(source, REPLACE, Changes(body=body, delay=delay))
        self._keeps_due = keeps_due
        admit(source, self._policy, len(body))

    def due(self, moved: Moved) -> int:
        """Return the old due time, or the moment of the exchange."""
        return moved.bundle.due if self._keeps_due else super().due(moved)


class Unblock(InPlace):
    """As they were sent: messages that block their groups. Their retention counts from now on, and so do their ids."""

    def __init__(self, source: QueueContext) -> None:
        super().__init__(source, UNBLOCK)
        self._moments: dict[MessageId, int] = {}  # by the first message of neighbours

    def carry_out(self, shard: Shard, group: Sequence[Selection]) -> Answer[Fenced]:
        """Choose their moment: concurrent redrives of them use the first one's."""
        firsts = [_first_id(part) for each in group for part in each.neighbours]
        retention = self._source.settings.retention
        window = _REMEMBERED if retention is None else min(_REMEMBERED, microseconds(retention) // 2)
        log, now = DecisionLog(self._source, _PREFIX), str(self._source.store.now())
        decisions = log.decide_all([str(first) for first in firsts], now, window)
        self._moments |= {first: int(each.value) for first, each in zip(firsts, decisions, strict=True)}
        return super().carry_out(shard, group)

    def _new_id(self, selection: Selection) -> bytes:
        """Make an id of that moment."""
        first = _first_id(selection)
        moment = self._moments[first]
        return repeatable_bundle_id(moment, 0, "unblock", first.bundle_id.hex(), _positions(selection))


class ToQueue(Move):
    """To another queue of the same client, maybe with another body, headers, priority or due time."""

    def __init__(self, source: QueueContext, queue: str, changes: Changes, *, atomic: bool) -> None:
        super().__init__(source, source.sibling(queue), FORWARD, changes)
        admit(self._target, self._policy)
        if atomic and not self._in_one_step:
            raise UnsupportedByStore(
                "this store cannot ack in one shard and send to another in one step: "
                "pass atomic=False to accept that a crash in between leaves a message in both queues"
            )


class DeadLetters(Move):
    """To the dead-letter queue, with headers for its origin and the reason."""

    def __init__(self, source: QueueContext, reason: str, operation: SettleOperation = DEAD_LETTER) -> None:
        super().__init__(source, dead_letter_context(source), operation)
        self._reason = self.details.text = reason

    def changed(self, selection: Selection) -> BundleData:
        """Return the messages with further headers."""
        messages, held = _chosen(selection), selection.held
        before: Sequence[Headers | None] = messages.headers or [None] * len(messages.bodies)
        headers: list[Headers | None] = [
            dead_letter_headers(
                old,
                self._source.name,
                str(held.message_id(position)),
                held.deliveries,
                self._reason,
                held.bundle.group,
            )
            for old, position in zip(before, selection.positions, strict=True)
        ]
        return msgspec.structs.replace(messages, headers=headers)

    def group(self, selection: Selection) -> str:  # noqa: ARG002
        """Return no group: dead letters wait for nothing. A header has the group."""
        return ""


class BackToSource(Move):
    """From the dead-letter queue to the queue that a letter came from, without the headers of a dead letter."""

    def __init__(self, source: QueueContext, target: QueueContext) -> None:
        super().__init__(source, target, REDRIVE)

    def changed(self, selection: Selection) -> BundleData:
        """Return the dead letters as they were in their last queue."""
        return unmarked(_chosen(selection))

    def group(self, selection: Selection) -> str:
        """Return the group that the dead letters had, in one of the target's lanes."""
        return lane_among(original_group(selection), self._lanes)


def unmarked(messages: BundleData) -> BundleData:
    """Return dead letters as they were in the queue that they were in last."""
    headers = [original_headers(marked) for marked in messages.headers or ()]
    return msgspec.structs.replace(messages, headers=headers if any(headers) else None)


def _chosen(selection: Selection) -> BundleData:
    """Copy the selected messages as a separate bundle."""
    messages = selection.held.messages
    return BundleData(
        [messages.bodies[position] for position in selection.positions],
        messages.headers and [messages.headers[position] for position in selection.positions],
        messages.dedupe_keys and [messages.dedupe_keys[position] for position in selection.positions],
        large=messages.large,
    )


def _first_id(selection: Selection) -> MessageId:
    return selection.held.message_id(selection.positions[0])


def _positions(selection: Selection) -> str:
    """Write the positions of selected messages in their bundle."""
    return ",".join(str(selection.held.first + position) for position in selection.positions)
