"""A topic: each published message goes to each of its subscriptions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Unpack

import msgspec

from shardq.base.codec import BYTES, Codec, check_codec
from shardq.base.outgoing_message import HeaderValue, OutgoingMessage
from shardq.client.producer import Producer
from shardq.client.queue import Queue
from shardq.core.context.queue_context import QueueContext, QueueContexts
from shardq.core.hooks import HookCall, with_headers
from shardq.core.queue_lifecycle import create_queue
from shardq.core.settings import QueueSettings, QueueSettingsArguments, check_number, warn_of_differences
from shardq.core.settling.engine import MAX_LEASE_SECONDS
from shardq.errors import InvalidSetting, QueueNotFound
from shardq.storage.per_process import PerProcess
from shardq.storage.writing import reporting_done
from shardq.topics.background import background_of
from shardq.topics.envelopes import Stamp, TopicMessage, envelope, envelopes, is_envelope
from shardq.topics.filters import EVERYTHING, FilterLike, filter_of
from shardq.topics.leftovers import drop_subscription, drop_unnamed
from shardq.topics.names import (
    SubscriptionExists,
    SubscriptionNotFound,
    TopicNotFound,
    check_name,
    folder_of,
    job_of,
    log_of,
    queue_of,
)
from shardq.topics.relay import Relay
from shardq.topics.state import SubscriptionRecord, TopicState, ensure_state
from shardq.topics.subscription import (
    Start,
    Subscription,
    SubscriptionQueue,
    filling_from,
    moment_of,
    new_incarnation,
    relayed_from,
)

__all__ = ["Topic"]

_SMALL: QueueSettingsArguments = {"shards": 2, "time_shards": 4}
_COMMIT_SECONDS = 60.0
_FORBIDDEN = ("expires", "max_messages", "max_bytes", "overflow", "sends_paused", "dead_letter_queue")


class Topic:
    """Messages for any number of subscriptions, each of which gets all that its filter takes. Made by a client.

    A message that was published is stored in the log of the topic. A relay copies it to the subscriptions: a thread of
    a process that has a consumer of the topic or publishes to it. Safe for threads, and in forked children.

    >>> topic = shardq.connect(url).create_topic("news", retention=3600)
    >>> topic.publish_many([b"rain", b"sun"], subject="weather.oslo")
    >>> late = topic.subscribe("archive", filter="weather.>", start="earliest")
    >>> with late.consumer() as consumer:
    ...     sorted(consumer.receive(10, wait=5).bodies)
    [b'rain', b'sun']
    """

    def __init__(self, contexts: QueueContexts, name: str, *, codec: Codec = BYTES) -> None:
        self.name, self._contexts, self._codec = check_name("topic", name), contexts, check_codec(codec)
        with self._there():
            log = contexts.of(log_of(name))
        self._log, self._hooks = Queue(log), log.hooks
        ensure_state(contexts, name)
        self._singles, self._bulk = Producer(log), Producer(log, bundle_messages=1)
        self._relay = PerProcess(self._open_relay)
        self._background = background_of(contexts, name)

    @property
    def retention(self) -> float:
        """Seconds for which messages that were relayed can be read again. Raises TopicNotFound."""
        with self._there():
            return self._log.settings.history_retention

    def alter(self, *, retention: float) -> None:
        """Change the retention. Raises InvalidSetting or TopicNotFound."""
        with self._there():
            self._log.alter(history_retention=retention)

    def publish(
        self,
        body: Any,
        *,
        subject: str | None = None,
        headers: Mapping[str, HeaderValue] | None = None,
        dedupe_key: str | None = None,
    ) -> None:
        """Store a message, which goes to each subscription that takes it.

        It is durable when this returns, for every subscription that was there when it was called. ``subject`` is
        tokens with dots between them; subscribers find it in the header ``shardq-subject``. A second message with the
        same ``dedupe_key`` within five minutes is not stored. To repeat a publish that raised OutcomeUnknown, publish
        the messages in ``error.unsent``.

        Raises InvalidMessage, MessageTooLarge (above 960 KiB), TopicNotFound, StoreUnavailable or OutcomeUnknown.
        """
        with self._publishing(batch=False) as stamp:
            if is_envelope(body):
                packed = body
            else:
                packed = envelope(
                    TopicMessage(body=body, subject=subject, headers=stamp(headers)), self._codec
                )
                packed = msgspec.structs.replace(packed, dedupe_key=dedupe_key)
            self._singles.send(packed)
        self._published()

    def publish_many(
        self,
        bodies: Iterable[Any],
        *,
        subject: str | None = None,
        headers: Mapping[str, HeaderValue] | None = None,
    ) -> None:
        """Store many messages, as fast as ``send_many``. A :class:`TopicMessage` among them has its own options.

        When it stops part way it raises PartialSend: publish ``error.unsent`` again. Of a sequence nothing is stored
        when one of the messages is refused; an iterable is read bit by bit. Errors as in :meth:`publish`.
        """
        with self._publishing(batch=True) as stamp:
            shared = TopicMessage(body=None, subject=subject, headers=stamp(headers))
            packed: Iterable[OutgoingMessage] = envelopes(bodies, shared, self._codec, stamp)
            self._bulk.send_many(list(packed) if isinstance(bodies, Sequence) else packed)
        self._published()

    def subscribe(
        self,
        name: str,
        *,
        filter: FilterLike | None = None,  # noqa: A002 - as everywhere in this field
        start: Start = "latest",
        **settings: Unpack[QueueSettingsArguments],
    ) -> Subscription:
        """Make a durable subscription, or open the one of that name as it is, with a warning for other settings.

        ``filter`` is a pattern of subjects, several, or a :class:`Filter`; None takes everything. A new one gets the
        messages that are published from now on. With ``start="earliest"`` it also gets earlier ones, and with an aware
        datetime those since then, as far as the topic keeps them. They are there when this returns. ``settings`` are
        those of its queue, such as ``visibility_timeout`` and ``max_deliveries``.

        Raises InvalidName, InvalidFilter, InvalidSetting, SubscriptionExists if it has another filter, TopicNotFound.
        """
        name = check_name("subscription", name)
        wanted = None if filter is None else filter_of(filter)
        since = None if start == "latest" else moment_of("start", start)
        _check_settings(settings)
        with self._there():
            while True:
                opened = self._opened(name, wanted)
                if opened is not None:
                    kept = msgspec.structs.asdict(opened.queue.settings)
                    what = f"subscription {name!r} of topic {self.name!r}"
                    warn_of_differences(what, kept, settings, "`subscription.queue.alter` changes it")
                made = opened or self._made(name, wanted or EVERYTHING, since, {**_SMALL, **settings})
                if made is not None:
                    return made

    def subscription(self, name: str) -> Subscription:
        """Open an existing subscription. Raises SubscriptionNotFound or TopicNotFound."""
        name = check_name("subscription", name)
        with self._there():
            found = self._opened(name, None)
        if found is None:
            raise SubscriptionNotFound(
                f"topic {self.name!r} has no subscription {name!r}: `shardq subscription list {self.name}` shows those "
                "that it has"
            )
        return found

    def subscriptions(self) -> tuple[str, ...]:
        """Return the names of all subscriptions, sorted. Raises TopicNotFound."""
        with self._there():
            known = self._relay.get().read().subscriptions
            there = set(self._contexts.names(folder_of(self.name)))
            queues = {name: queue_of(self.name, name, each.incarnation) for name, each in known.items()}
            return tuple(sorted(name for name, queue in queues.items() if queue in there))

    def relay(self, *, wait: float = 0.0) -> int:
        """Copy waiting messages of the log to the subscriptions, in this thread; returns how many envelopes it were.

        Consumers and publishers do so automatically. It is for processes that do nothing else, and for tests. Waits up
        to ``wait`` seconds for the first message. Raises InvalidSetting or TopicNotFound.
        """
        check_number("wait", wait, 0.0, 10 * MAX_LEASE_SECONDS)
        with self._there():
            return self._relay.get().run(wait=wait)

    # -- within ---------------------------------------------------------------------------------------------------

    @contextmanager
    def _publishing(self, *, batch: bool) -> Iterator[Stamp]:
        """Publish within it, with hooks around that; gives what makes the headers of each message."""
        hooks, queue = self._hooks, self._log.name
        with self._there():
            if hooks is None:
                yield lambda headers: headers
                return
            with hooks.around(HookCall(operation="send", queue=queue, batch=batch)):
                yield partial(with_headers, hooks, queue)

    def _published(self) -> None:
        if self._contexts.outside is None:
            self._background.get().published()
        else:  # no thread is notified when the application commits
            self._background.get().serve_for(_COMMIT_SECONDS)

    def _opened(self, name: str, wanted: Any) -> Subscription | None:
        """Open an existing subscription; None when it does not exist, or its queue was deleted."""
        record = self._relay.get().read().subscriptions.get(name)
        if record is None:
            return None
        if wanted is not None and wanted != record.filter:
            raise SubscriptionExists(
                f"subscription {name!r} of topic {self.name!r} takes {record.filter}, not {wanted}: leave the filter "
                "out, or delete the subscription first"
            )
        try:
            return self._subscription(name, record)
        except QueueNotFound:
            return None

    def _made(
        self, name: str, wanted: Any, since: int | None, settings: QueueSettingsArguments
    ) -> Subscription | None:
        """Make the subscription now; None when another client was faster.

        In the end the record of its queue is replaced by an equal one. So a client that saw that before the state
        named it no longer drops it.
        """
        relay = self._relay.get()
        if since is None:
            relay.run()  # waiting messages are not for it
        incarnation = new_incarnation()
        context = self._queue_made(queue_of(self.name, name, incarnation), settings)
        if context is None:
            return None
        record = SubscriptionRecord(
            incarnation,
            wanted,
            context.settings.layout,
            since=0 if since is None else relayed_from(since, context.store.now()),
            filling=None if since is None else filling_from(since),
        )

        def add(state: TopicState) -> TopicState:
            known = state.subscriptions.get(name)
            if known is not None and self._contexts.exists(queue_of(self.name, name, known.incarnation)):
                return state
            added = state.with_subscription(name, record)
            added.check_size()
            return added

        try:
            stored = relay.change(add).subscriptions.get(name)
        except InvalidSetting:
            drop_subscription(self._contexts, context.name)
            raise
        if stored is None or stored.incarnation != incarnation:
            drop_subscription(self._contexts, context.name)
            return None
        with reporting_done(lambda: f"subscription {name!r} is made: repeat the call"):
            if not _confirmed(context):
                return None
            drop_unnamed(self._contexts, self.name, name, lambda: relay.read().incarnation(name))
            if since is not None:
                relay.fill(name, incarnation)
            return self._subscription(name, record)

    def _queue_made(self, queue: str, settings: QueueSettingsArguments) -> QueueContext | None:
        """Create a queue for a subscription; None when it was dropped at once, as the state does not name it yet."""
        try:
            context = create_queue(self._contexts, queue, settings, exist_ok=False)
            context.live.assign(job_of(self.name))
        except QueueNotFound:
            return None
        return context

    def _subscription(self, name: str, record: SubscriptionRecord) -> Subscription:
        context = self._contexts.of(queue_of(self.name, name, record.incarnation))
        queue = SubscriptionQueue(context, self._background)
        return Subscription(self._contexts, self.name, name, record, queue, self._relay.get)

    def _open_relay(self) -> Relay:
        return Relay(self._contexts, self.name)

    @contextmanager
    def _there(self) -> Iterator[None]:
        """Raise an error that names the topic where its queues are not found."""
        try:
            yield
        except (SubscriptionNotFound, TopicNotFound):
            raise
        except QueueNotFound as error:
            raise TopicNotFound(
                f"topic {self.name!r} does not exist: create it with `shardq topic create {self.name}`"
            ) from error

    def __repr__(self) -> str:
        return f"<Topic {self.name}>"


def _confirmed(context: QueueContext) -> bool:
    """Replace the record of a queue by an equal one; False when it is dropped."""
    try:
        context.live.alter({})
    except QueueNotFound:
        return False
    return True


def _check_settings(settings: QueueSettingsArguments) -> None:
    """Raise InvalidSetting for settings that the queue of a subscription cannot have."""
    QueueSettings().change(settings)
    for name in _FORBIDDEN:
        if name in settings:
            raise InvalidSetting(
                f"{name!r} cannot be set for a subscription, which gets all that was published: leave it out"
            )
