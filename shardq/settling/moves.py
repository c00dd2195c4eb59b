"""Moving held messages: to another queue, to the dead-letter queue, or back into their shard with another body.

A move acks here and sends there. Stores do it in one atomic step where they can. Where they cannot, it is sent first: a
crash in between leaves the message in both places, and repeating the move completes it instead of sending again.
A message keeps its ``enqueued_at`` wherever it is moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from shardq.context.queue_context import QueueContext
from shardq.context.retry import Answer
from shardq.errors import UnsupportedByStore
from shardq.held import Pick
from shardq.sending.admission import check_sizes, check_takes_messages
from shardq.settling.dead_letters import dead_letter_context, dead_letter_headers, original_headers
from shardq.settling.picks import spans_of
from shardq.settling.stepwise import Part, move_step_by_step
from shardq.sharding.shard import Shard
from shardq.storage.bundle_data import BundleData, Headers, encode_bundle
from shardq.storage.bundle_id import derive_bundle_id
from shardq.storage.requests import Acknowledge, Append, Bundle, Fenced, Forward

__all__ = ["BackToSource", "DeadLetters", "Move", "SameShard", "ToQueue", "unmarked"]


class Move(Protocol):
    """Where messages go, and what changes on the way."""

    def carry_out(self, shard: Shard, group: Sequence[Pick]) -> Answer[Fenced]:
        """Move the picked messages of one shard, all or none."""
        ...


class SameShard:
    """Back into the shard as new messages with another body."""

    def __init__(self, source: QueueContext, body: bytes, delay: int) -> None:
        check_sizes(source, BundleData([body]))
        self._source, self._body, self._delay = source, body, delay

    def carry_out(self, shard: Shard, group: Sequence[Pick]) -> Answer[Fenced]:
        """Exchange the messages."""
        now = self._source.store.now()
        parts = [Part(pick, self._changed(pick)) for pick in group]
        for part in parts:
            check_sizes(self._source, part.messages)
        bundles = [_bundle(part, _replacement_id(part.pick), now + self._delay) for part in parts]
        return _forward(self._source, Acknowledge(shard, spans_of(group)), Append(shard, tuple(bundles)))

    def _changed(self, pick: Pick) -> BundleData:
        messages = _chosen(pick)
        return msgspec.structs.replace(messages, bodies=[self._body] * len(messages.bodies))


class ToQueue:
    """To another queue of the same client."""

    def __init__(self, source: QueueContext, queue: str, *, atomic: bool) -> None:
        self._source, self._target, self._atomic = source, source.sibling(queue), atomic
        check_takes_messages(self._target)
        if atomic and not source.store.capabilities.forward_across_shards:
            raise UnsupportedByStore(
                "this store cannot ack in one shard and send to another in one step: "
                "pass atomic=False to accept that a crash in between leaves a message in both queues"
            )

    def carry_out(self, shard: Shard, group: Sequence[Pick]) -> Answer[Fenced]:
        """Move the messages."""
        parts = [_chosen(pick) for pick in group]
        for part in parts:
            check_sizes(self._target, part)
        keep = self._source.settings.history_retention > 0
        return _send_over(self._source, self._target, shard, group, parts, keep=keep)


class DeadLetters:
    """To the dead-letter queue, with headers that tell where from and why."""

    def __init__(self, source: QueueContext, reason: str) -> None:
        self._source, self._reason = source, reason
        self._target = dead_letter_context(source)

    def carry_out(self, shard: Shard, group: Sequence[Pick]) -> Answer[Fenced]:
        """Move the messages."""
        return _send_over(self._source, self._target, shard, group, [self._marked(pick) for pick in group])

    def _marked(self, pick: Pick) -> BundleData:
        messages = _chosen(pick)
        before: Sequence[Headers | None] = messages.headers or [None] * len(messages.bodies)
        headers: list[Headers | None] = [
            (old or {})
            | dead_letter_headers(
                self._source.name, str(pick.held.message_id(position)), pick.held.deliveries, self._reason
            )
            for old, position in zip(before, pick.positions, strict=True)
        ]
        return msgspec.structs.replace(messages, headers=headers)


class BackToSource:
    """From the dead-letter queue to the queue that a letter came from, without the headers of a dead letter."""

    def __init__(self, source: QueueContext, target: QueueContext) -> None:
        self._source, self._target = source, target

    def carry_out(self, shard: Shard, group: Sequence[Pick]) -> Answer[Fenced]:
        """Move the letters."""
        check_takes_messages(self._target)
        return _send_over(
            self._source, self._target, shard, group, [unmarked(_chosen(pick)) for pick in group]
        )


def unmarked(messages: BundleData) -> BundleData:
    """Dead letters as they were when they were sent."""
    headers = [original_headers(marked) for marked in messages.headers or ()]
    return msgspec.structs.replace(messages, headers=headers if any(headers) else None)


def _send_over(
    source: QueueContext,
    target: QueueContext,
    shard: Shard,
    group: Sequence[Pick],
    parts: Sequence[BundleData],
    *,
    keep: bool = False,
) -> Answer[Fenced]:
    """Move messages to another queue; with ``keep`` they count as processed in the one that they leave."""
    moved = [Part(pick, part) for pick, part in zip(group, parts, strict=True)]
    if not source.store.capabilities.forward_across_shards:
        return move_step_by_step(source, target, shard, moved, keep=keep)
    now = target.store.now()
    bundles = tuple(_bundle(part, target.ids.new(now), now) for part in moved)
    place = target.placement.choose(target.settings.layout, now, sum(bundle.count for bundle in bundles))
    return _forward(source, Acknowledge(shard, spans_of(group), keep), Append(place, bundles))


def _forward(source: QueueContext, acknowledge: Acknowledge, append: Append) -> Answer[Fenced]:
    return source.retry.ask(source.store.forward, Forward(acknowledge, append))


def _chosen(pick: Pick) -> BundleData:
    """The picked messages as a bundle of their own."""
    messages = pick.held.messages
    return BundleData(
        [messages.bodies[position] for position in pick.positions],
        messages.headers and [messages.headers[position] for position in pick.positions],
        messages.dedupe_keys and [messages.dedupe_keys[position] for position in pick.positions],
    )


def _bundle(part: Part, identity: bytes, due: int) -> Bundle:
    source, messages = part.pick.held.bundle, part.messages
    return Bundle(
        identity, source.priority, due, source.enqueued_at, len(messages.bodies), encode_bundle(messages)
    )


def _replacement_id(pick: Pick) -> bytes:
    """The id of what takes the place of messages in their shard: it says of the same moment that it was made for."""
    places = ",".join(str(pick.held.first + position) for position in pick.positions)
    return derive_bundle_id(pick.held.bundle.id, "replace", places)
