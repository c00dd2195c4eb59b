"""One subscription of a topic: its messages, and the calls for them."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias

import msgspec

from shardq.base.clock import from_datetime, is_aware
from shardq.base.codec import BYTES, Codec
from shardq.base.texts import shown
from shardq.client.consumer import Consumer
from shardq.client.queue import Queue
from shardq.core.context.queue_context import QueueContext, QueueContexts
from shardq.errors import InvalidSetting, QueueNotFound
from shardq.storage.per_process import PerProcess
from shardq.storage.writing import reporting_done
from shardq.topics.background import Background
from shardq.topics.filters import Filter
from shardq.topics.leftovers import drop_subscription, drop_unnamed
from shardq.topics.names import SubscriptionNotFound
from shardq.topics.relay import APART, Relay
from shardq.topics.state import Filling, SubscriptionRecord, TopicState

__all__ = [
    "Start",
    "Subscription",
    "SubscriptionQueue",
    "SubscriptionState",
    "filling_from",
    "moment_of",
    "new_incarnation",
    "relayed_from",
]

Start: TypeAlias = Literal["latest", "earliest"] | datetime
"""The first messages of a subscription: those published from now on, all that are kept, or those since a moment."""

_SKEW = 60_000_000
"""Microseconds that clocks may differ by before a message is missed."""


class SubscriptionState(msgspec.Struct, frozen=True):
    """How far a subscription is."""

    name: str
    filter: str
    queue: str  # where its messages are
    ready: int
    delayed: int
    in_flight: int
    filling: bool  # it is still to get messages from before it was made, or was rewound
    missed: float  # seconds of the time that it was to get from the history which were over before it did


class SubscriptionQueue(Queue):
    """The queue of a subscription: while it has consumers in a process, that process relays."""

    def __init__(self, context: QueueContext, background: PerProcess[Background]) -> None:
        super().__init__(context)
        self._background = background

    def consumer(
        self,
        *,
        codec: Codec = BYTES,
        name: str | None = None,
        visibility_timeout: float | None = None,
        keep_leases: bool = False,
        prefetch: int = 0,
    ) -> Consumer:
        """Return a consumer, as :meth:`shardq.Queue.consumer` does, for which a thread relays."""
        consumer = super().consumer(
            codec=codec,
            name=name,
            visibility_timeout=visibility_timeout,
            keep_leases=keep_leases,
            prefetch=prefetch,
        )
        self._background.get().serve(consumer)
        return consumer


class Subscription:
    """A durable, named subscription of a topic. Made by :meth:`shardq.topics.Topic.subscribe`. Safe for threads.

    Its messages are in a queue, :attr:`queue`: workers, acks, dead letters and all else are those of any queue. The
    consumers of a subscription, in all processes, share its messages.

    >>> topic = shardq.connect(url).create_topic("orders")
    >>> mail = topic.subscribe("mail", filter="orders.*.created")
    >>> topic.publish(b"order 7", subject="orders.7.created")
    >>> with mail.consumer() as consumer:
    ...     consumer.receive(10, wait=5).bodies
    [b'order 7']
    """

    def __init__(
        self,
        contexts: QueueContexts,
        topic: str,
        name: str,
        record: SubscriptionRecord,
        queue: SubscriptionQueue,
        relay: Callable[[], Relay],
    ) -> None:
        self.topic, self.name, self.queue = topic, name, queue
        self._contexts, self._record, self._relay = contexts, record, relay

    @property
    def filter(self) -> Filter:
        """Which messages it takes."""
        return self._record.filter

    def consumer(self, **options: Any) -> Consumer:
        """Return a consumer of its messages, with the options of :meth:`shardq.Queue.consumer`.

        While it lives a thread of this process relays published messages, for all subscriptions of the topic.
        """
        return self.queue.consumer(**options)

    def state(self) -> SubscriptionState:
        """Count the messages that it has, without those that are not relayed yet. Raises SubscriptionNotFound."""
        with self._there():
            record, counts = self._known(self._relay().read()), self.queue.counts()
        return SubscriptionState(
            self.name,
            str(record.filter),
            self.queue.name,
            counts.ready,
            counts.delayed,
            counts.in_flight,
            record.filling is not None,
            record.missed / 1e6,
        )

    def seek(self, to: datetime | Literal["earliest"]) -> timedelta:
        """Rewind: messages that were published since then are delivered again, as far as the topic keeps them.

        Pending messages and messages in flight are removed first, dead letters stay. When this returns all of it is
        copied. If this process dies first, others complete it. Returns how much of the time since ``to`` has expired,
        as the topic's retention is shorter; none for ``earliest``. Raises InvalidSetting or SubscriptionNotFound.
        """
        if to == "latest":
            raise InvalidSetting("to='latest': purge the queue of the subscription instead")
        since, relay = moment_of("to", to), self._relay()

        def rewind(state: TopicState) -> TopicState:
            now, begun = self._contexts.store.now(), max(relay.moment(state), state.at + APART)
            filling = msgspec.structs.replace(filling_from(since), empties=True, begun=begun)
            record = msgspec.structs.replace(
                self._known(state), filling=filling, since=relayed_from(since, now), missed=0
            )
            return msgspec.structs.replace(state.with_subscription(self.name, record), at=begun)

        with self._there():
            relay.change(rewind)
            with reporting_done(
                lambda: f"subscription {self.name!r} is rewound, but not filled yet: repeat the call"
            ):
                record = relay.fill(self.name, self._record.incarnation)
        if record is None:
            raise self._unknown()
        return timedelta(microseconds=record.missed)

    def delete(self) -> None:
        """Delete the subscription with its messages and dead letters. Nothing is delivered from then on.

        Raises SubscriptionNotFound.
        """

        def without(state: TopicState) -> TopicState:
            if state.incarnation(self.name) != self._record.incarnation:
                return state  # it was made anew meanwhile
            return state.with_subscription(self.name, None)

        with self._there():
            self._known(self._relay().read())
            drop_subscription(self._contexts, self.queue.name)
            with reporting_done(
                lambda: f"subscription {self.name!r} is deleted, its name may be left: repeat the call"
            ):
                self._relay().change(without)
                drop_unnamed(
                    self._contexts, self.topic, self.name, lambda: self._relay().read().incarnation(self.name)
                )

    def _known(self, state: TopicState) -> SubscriptionRecord:
        record = state.subscriptions.get(self.name)
        if record is None or record.incarnation != self._record.incarnation:
            raise self._unknown()
        return record

    @contextmanager
    def _there(self) -> Iterator[None]:
        """Raise an error that names the subscription where its queues, or those of its topic, are not found."""
        try:
            yield
        except SubscriptionNotFound:
            raise
        except QueueNotFound as error:
            raise self._unknown() from error

    def _unknown(self) -> SubscriptionNotFound:
        return SubscriptionNotFound(
            f"subscription {self.name!r} of topic {self.topic!r} does not exist: make it with "
            f"`shardq subscription create {self.topic} {self.name}`"
        )

    def __repr__(self) -> str:
        return f"<Subscription {self.name} of {self.topic}>"


def new_incarnation() -> str:
    """Make a part of the name of a new subscription's queue: no other one has had it."""
    return secrets.token_hex(4)


def moment_of(argument: str, start: object) -> int:
    """Return the moment of publishing from which messages are wanted, in microseconds. Raises InvalidSetting."""
    if start == "earliest":
        return 0
    if not is_aware(start):
        raise InvalidSetting(
            f"{argument}={shown(start)}: give 'earliest' or an aware datetime, such as datetime.now(UTC)"
        )
    return from_datetime(start)


def relayed_from(since: int, now: int) -> int:
    """Return the moment of publishing from which a subscription gets messages that are not relayed yet.

    It is a minute ago or earlier, or well ahead: the clock of a publisher may be slow, and nothing is missed for that.
    """
    return since if since > now + _SKEW else max(0, min(since, now - _SKEW))


def filling_from(since: int) -> Filling:
    """Describe the history for a subscription from a moment of publishing: it was acked after that, nearly."""
    return Filling(since, (max(0, since - _SKEW), "", b"", 0))
