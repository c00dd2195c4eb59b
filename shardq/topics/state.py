"""The state of a topic: its subscriptions, and the round of the relay that is under way.

It is the body of one message, alone in a queue. To change it, a client claims the message and exchanges it for one
with another body. A store does that in one step and only while the claim is still held. So changes come one after the
other, and an overtaken client changes nothing.

Beside it is the **mark** of a topic that has a state: a message that is never due, and never changed. It is stored in
the same step as the first state. A read that a claim overtakes may miss the state, but not the mark.
"""

from __future__ import annotations

import time

import msgspec

from shardq.base.clock import microseconds
from shardq.base.outgoing_message import DEFAULT_PRIORITY, Bundle
from shardq.base.receipt import Receipt
from shardq.base.shard import Layout, Shard
from shardq.client.queue import Queue
from shardq.client.queue_internals import replace_body
from shardq.core.context.queue_context import QueueContext, QueueContexts
from shardq.core.message import Message
from shardq.core.queue_lifecycle import create_queue
from shardq.core.sending.appending import AppendPolicy, append
from shardq.core.sending.planned_bundles import PlannedBundle
from shardq.core.settings import QueueSettingsArguments
from shardq.core.settling.leases import shorten_fixed_leases
from shardq.errors import InvalidSetting, LeaseLost, QueueNotFound, StoreUnavailable
from shardq.storage.bundles import BundleData, encode_bundle, repeatable_bundle_id
from shardq.topics.filters import Filter
from shardq.topics.names import TopicNotFound, state_of

__all__ = [
    "RELAY",
    "Filling",
    "Held",
    "Round",
    "SubscriptionRecord",
    "TopicState",
    "ensure_state",
    "open_register",
]

RELAY = AppendPolicy(obeys_pause=False, obeys_size=False, obeys_bounds=False, counts_sent=False)
"""Published messages are always let in: their publishers have been promised that. So are states."""

_LEASE_SECONDS = 30.0
_FIRST = 1_600_000_000_000_000  # microseconds; when the first state of every topic was due
_NEVER = _FIRST + 1_000 * 366 * 86_400_000_000
_LAST_PRIORITY = 9
_SAME_ID = 600_000_000  # microseconds for which a store surely knows an id after its message is finished
_SLICE = 0.1  # seconds for which it is waited without such a read
_READS = 20
_MOST_BYTES = 500_000  # of all subscriptions; a message has twice as much, for their rewinds and for a round
_PAUSE = 0.01  # seconds between them


class Filling(msgspec.Struct, frozen=True, array_like=True):
    """The history that a subscription is still to get: messages published since a moment, in microseconds."""

    since: int
    # The last one that it got: when it was acked, its shard, bundle and position.
    cursor: tuple[int, str, bytes, int]
    empties: bool = False  # what was copied before `begun` is to be removed first
    begun: int = 0


class SubscriptionRecord(msgspec.Struct, frozen=True):
    """A subscription."""

    incarnation: str
    filter: Filter
    layout: Layout
    since: int  # of what was published before this moment the relay copies nothing; 0: all, whatever the clocks say
    filling: Filling | None = None  # until it is None only the history is copied
    missed: int = 0  # microseconds of the history that were over before it got them


class Round(msgspec.Struct, frozen=True, array_like=True):
    """Messages of the log that are copied to subscriptions together, by any relay."""

    at: int  # names it: later rounds have later moments, maybe ahead of the clock
    due: int  # when it was entered
    by: str  # the relay that began it
    messages: tuple[str, ...]  # receipts; of a filling: ids
    filling: str = ""  # the only subscription that gets them
    cursor: tuple[int, str, bytes, int] | None = None

    @property
    def ids(self) -> list[str]:
        """The ids of the messages."""
        if self.filling:
            return list(self.messages)
        return [str(Receipt.parse(receipt).id) for receipt in self.messages]


class TopicState(msgspec.Struct, frozen=True):
    """A topic's subscriptions, and its rounds."""

    subscriptions: dict[str, SubscriptionRecord] = {}
    round: Round | None = None  # under way; nothing else changes before it is complete
    at: int = 0  # of the last round; its markers may still be there

    def incarnation(self, name: str) -> str | None:
        """Return the incarnation of a subscription; None when there is none of the name."""
        record = self.subscriptions.get(name)
        return None if record is None else record.incarnation

    def with_subscription(self, name: str, record: SubscriptionRecord | None) -> TopicState:
        """Return the state with another record of a subscription; None: without it."""
        others = {each: known for each, known in self.subscriptions.items() if each != name}
        return msgspec.structs.replace(
            self, subscriptions=others if record is None else {**others, name: record}
        )

    def entered(self, round_: Round) -> TopicState:
        """Return the state with a round under way."""
        return msgspec.structs.replace(self, round=round_, at=round_.at)

    def filling(self) -> str | None:
        """Return the subscription that is filled from the history now; None when none is."""
        return next((name for name, record in self.subscriptions.items() if record.filling is not None), None)

    def targets(self, round_: Round) -> dict[str, SubscriptionRecord]:
        """Return the subscriptions that get the messages of a round."""
        return {
            name: record
            for name, record in self.subscriptions.items()
            if (name == round_.filling if round_.filling else record.filling is None)
        }

    def completed(self) -> TopicState:
        """Return the state when the round under way is complete."""
        state, done = msgspec.structs.replace(self, round=None), self.round
        record = state.subscriptions.get(done.filling) if done is not None else None
        if done is None or record is None or record.filling is None or done.cursor is None:
            return state
        filling = msgspec.structs.replace(record.filling, cursor=done.cursor)
        return state.with_subscription(done.filling, msgspec.structs.replace(record, filling=filling))

    def check_size(self) -> None:
        """Raise InvalidSetting when the subscriptions leave too little of a message for rounds and rewinds."""
        if (size := len(_encode(self.subscriptions))) > _MOST_BYTES:
            raise InvalidSetting(
                f"the subscriptions of the topic would have {size:,} bytes with their filters, and may have "
                f"{_MOST_BYTES:,}: use shorter filters, or another topic"
            )


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(TopicState).decode


class Held:
    """The state under a claim: no other client changes it while that is held."""

    def __init__(self, message: Message) -> None:
        self._message, self.state = message, _decode(message.body)

    def replace(self, state: TopicState) -> None:
        """Store another state and give it up. Raises LeaseLost, with nothing changed, when another client has it."""
        replace_body(self._message, _encode(state))

    def keep(self) -> None:
        """Hold it for another lease. Raises LeaseLost."""
        self._message.extend(_LEASE_SECONDS)

    def release(self) -> None:
        """Give it up as it is."""
        try:
            self._message.release(count=False)
        except LeaseLost:
            return


class Register:
    """The state of one topic. Used by one thread at a time."""

    def __init__(self, contexts: QueueContexts, topic: str) -> None:
        self._context, self._topic = contexts.of(state_of(topic)), topic
        self._queue = Queue(self._context)
        self._consumer = self._queue.consumer(visibility_timeout=_LEASE_SECONDS)

    def take(self, wait: float) -> Held | None:
        """Claim the state; None when another client has it for ``wait`` seconds."""
        until = time.monotonic() + wait
        # Without a wait, also from a shard that is left to others for a while.
        while not (batch := self._consumer.receive(1)):
            left = until - time.monotonic()
            if left <= 0 or (batch := self._consumer.receive(1, wait=min(left, _SLICE))):
                break
        if not batch:
            shorten_fixed_leases(self._context, microseconds(_LEASE_SECONDS))
            return None
        return Held(batch[0])

    def read(self) -> TopicState:
        """Read the present state."""
        for _ in range(_READS):
            if (found := _seen(self._queue)) is not None:
                return _decode(found)
            self._context.live.refresh()  # or it was deleted
            time.sleep(_PAUSE)
        raise StoreUnavailable(f"the state of topic {self._topic!r} cannot be read: try again")

    def close(self) -> None:
        """Release its messages, and end."""
        self._consumer.close()


def ensure_state(contexts: QueueContexts, topic: str) -> None:
    """Make the state of a topic if the creator of the topic did not.

    Every client stores it under the same id, so it is there once. That id is soon forgotten, as the state changes. So
    the mark, and not a read, shows whether there is one.
    """
    context = _state_context(contexts, topic)
    began, queue, shard = context.store.now(), Queue(context), Shard(context.name, 0, 0)
    first, mark = (repeatable_bundle_id(_FIRST, number, queue.name) for number in range(2))
    if context.retry(context.store.find, shard, mark, 0) is not None:
        return
    new = () if _seen(queue) else ((first, DEFAULT_PRIORITY, _FIRST, _encode(TopicState())),)
    bundles = [
        Bundle(identity, priority, due, began, 1, encode_bundle(BundleData([body])))
        for identity, priority, due, body in (*new, (mark, _LAST_PRIORITY, _NEVER, b""))
    ]
    if context.store.now() - began > _SAME_ID:
        raise StoreUnavailable(f"topic {topic!r} was not made, as that took too long: try again")
    append(context, RELAY, [PlannedBundle.of(shard, bundle) for bundle in bundles])


def _state_context(contexts: QueueContexts, topic: str) -> QueueContext:
    """Open the queue of the state, which is created if it is missing."""
    try:
        return contexts.of(state_of(topic))
    except QueueNotFound:
        settings: QueueSettingsArguments = {
            "shards": 1,
            "time_shards": 1,
            "max_deliveries": None,
            "visibility_timeout": _LEASE_SECONDS,
        }
        return create_queue(contexts, state_of(topic), settings, exist_ok=True)


def _seen(queue: Queue) -> bytes | None:
    """Return the state as it is stored; None when a read does not find it."""
    return next((each.body for each in queue.peek(2) if each.priority < _LAST_PRIORITY), None)


def open_register(contexts: QueueContexts, topic: str) -> Register:
    """Open the register of a topic. Raises TopicNotFound."""
    try:
        return Register(contexts, topic)
    except QueueNotFound as error:
        raise TopicNotFound(
            f"topic {topic!r} does not exist: create it with `shardq topic create {topic}`"
        ) from error
