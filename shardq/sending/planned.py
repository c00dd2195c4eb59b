"""Sorting prepared messages into the bundles that they will be stored in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from shardq.context.queue_context import QueueContext
from shardq.errors import InvalidMessage
from shardq.receipt import MessageId
from shardq.sending.outgoing import Alike, PreparedMessage, SendOptions
from shardq.sharding.shard import Shard
from shardq.storage.bundle_data import BundleData, encode_bundle
from shardq.storage.bundle_id import made_at
from shardq.storage.requests import Bundle

__all__ = ["Draft", "make_drafts"]


class Draft(msgspec.Struct, frozen=True):
    """A bundle that is about to be stored, its shard, and where in the input its messages were."""

    shard: Shard
    bundle: Bundle
    places: Sequence[int]
    positions: Sequence[int]  # of these messages in the bundle; others may be in it when it is sent again
    dedupe_key: str | None = None  # of its only message
    delay: int | None = (
        None  # of a message with a key: its due time counts from its id, so both repeat together
    )
    again: bool = False  # it may be stored already

    @property
    def complete(self) -> bool:
        """True when its messages are all that is in the bundle, in their order."""
        return self.positions == range(self.bundle.count)

    def ids(self) -> Iterator[tuple[int, MessageId]]:
        """Where each message was in the input, and its id."""
        for place, position in zip(self.places, self.positions, strict=True):
            yield place, self.message_id(position)

    def message_id(self, position: int) -> MessageId:
        """The id of the message at a position of the bundle."""
        return MessageId(self.shard, self.bundle.id, position)


def make_drafts(context: QueueContext, messages: Sequence[PreparedMessage], now: int) -> list[Draft]:
    """Bundles of messages that share priority and due time.

    Messages with a dedupe key are bundles of their own; messages that have an id already go back into the
    bundle that the id names.
    """
    if isinstance(messages, Alike) and messages and _joins(messages.options):
        return [_draft(context, messages, range(len(messages)), now)]
    groups: dict[object, list[int]] = {}
    for place, message in enumerate(messages):
        groups.setdefault(_key(message.options, place), []).append(place)
    return [_draft(context, [messages[place] for place in places], places, now) for places in groups.values()]


def _joins(options: SendOptions) -> bool:
    return options.dedupe_key is None and options.id is None


def _key(options: SendOptions, place: int) -> object:
    if options.id is not None:
        return options.id.shard, options.id.bundle_id
    if options.dedupe_key is not None:
        return place
    return options.priority, options.delay, options.due


def _draft(
    context: QueueContext, messages: Sequence[PreparedMessage], places: Sequence[int], now: int
) -> Draft:
    options = messages[0].options
    if options.id is not None:
        return _again(options.id, messages, places, now)
    delay = options.delay if options.dedupe_key is not None and options.due is None else None
    due = options.moment(now)
    shard = context.placement.choose(context.settings.layout, due, len(messages))
    bundle_id = context.ids.new(now)
    if delay is not None:
        due = made_at(bundle_id) + delay
    bundle = Bundle(bundle_id, options.priority, due, now, len(messages), encode_bundle(_layout(messages)))
    return Draft(shard, bundle, places, range(len(messages)), options.dedupe_key, delay)


def _again(
    identity: MessageId, messages: Sequence[PreparedMessage], places: Sequence[int], now: int
) -> Draft:
    """The bundle that the messages were in when they were sent before."""
    options = messages[0].options
    positions = [message.options.id.position for message in messages if message.options.id is not None]
    if options.attempt is not None:
        return Draft(identity.shard, options.attempt.bundle, places, positions, again=True)
    if positions != list(range(len(messages))):
        raise InvalidMessage(
            f"message {identity} comes without its neighbours: send everything in `error.unsent`, in its order"
        )
    due = options.due if options.due is not None else now
    data = encode_bundle(_layout(messages))
    bundle = Bundle(identity.bundle_id, options.priority, due, now, len(messages), data)
    return Draft(
        identity.shard,
        bundle,
        places,
        range(len(messages)),
        options.dedupe_key,
        again=options.dedupe_key is None,
    )


def _layout(messages: Sequence[PreparedMessage]) -> BundleData:
    if isinstance(messages, Alike):
        shared = messages.options.headers
        return BundleData(list(messages.bodies), [shared] * len(messages) if shared else None)
    headers = [message.options.headers for message in messages]
    keys = [message.options.dedupe_key for message in messages]
    return BundleData(
        [message.body for message in messages],
        headers if any(headers) else None,
        keys if any(keys) else None,
    )
