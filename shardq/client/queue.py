"""One queue: its producers and consumers, the messages in it, and operations on it."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Unpack

from shardq.base.codec import BYTES, Codec, check_codec
from shardq.base.large_body import no_large_body
from shardq.base.receipt import MessageId
from shardq.base.texts import shown
from shardq.client.consumer import Consumer
from shardq.client.observed import consumer_class, producer_class
from shardq.client.producer import BUNDLE_BYTES, BUNDLE_MESSAGES, Producer
from shardq.client.semaphore import Semaphore, open_semaphore
from shardq.core.browsing import browse, browse_blocked, browse_history, find, period_of, remove
from shardq.core.consumer_states import ConsumerState, consumer_states, evict
from shardq.core.context.queue_context import QueueContext
from shardq.core.context.unique_keys import UniqueKeys
from shardq.core.counts import QueueCounts, ShardState, shard_states, total
from shardq.core.large.bodies import open_body
from shardq.core.logs.event_log import Event, trace
from shardq.core.logs.results import with_results
from shardq.core.message import StoredMessage
from shardq.core.queue_lifecycle import alter_queue
from shardq.core.receiving.redrive import redrive
from shardq.core.receiving.removing import purge
from shardq.core.receiving.upkeep import sweep
from shardq.core.selecting import MessageFilter, check_filter, remove_selected, select
from shardq.core.sending.prepared import check_unique_key
from shardq.core.sending.replays import replay
from shardq.core.settings import QueueSettings, QueueSettingsArguments, check_number
from shardq.core.settling.editing import EditArguments, edit
from shardq.core.settling.receipts import ack_receipts, extend_receipts, release_receipts
from shardq.errors import BodyNotFound, InvalidReceipt, InvalidSetting

__all__ = ["MANY", "Queue"]

MANY = 2**31


class Queue:
    """A queue of a store, safe for threads. Made by a :class:`~shardq.Client`."""

    def __init__(self, context: QueueContext) -> None:
        self._context = context

    @property
    def name(self) -> str:
        """The queue's name."""
        return self._context.name

    @property
    def settings(self) -> QueueSettings:
        """The settings, at most a second old. Raises QueueNotFound."""
        return self._context.settings

    def producer(
        self,
        *,
        codec: Codec = BYTES,
        linger: float = 0.0,
        bundle_messages: int = BUNDLE_MESSAGES,
        bundle_bytes: int = BUNDLE_BYTES,
    ) -> Producer:
        """Return a producer, which sends messages.

        With ``linger`` a ``send`` waits for that number of seconds for sends of other threads, and is stored in one
        bundle with them. Sends that run at the same time are joined even with 0. ``send_many`` closes a bundle when it
        holds ``bundle_messages`` messages, or when its bodies reach ``bundle_bytes``. Raises InvalidSetting.
        """
        return producer_class(self._context.hooks)(
            self._context,
            codec=codec,
            linger=linger,
            bundle_messages=bundle_messages,
            bundle_bytes=bundle_bytes,
        )

    def consumer(
        self,
        *,
        codec: Codec = BYTES,
        name: str | None = None,
        visibility_timeout: float | None = None,
        keep_leases: bool = False,
        prefetch: int = 0,
    ) -> Consumer:
        """Return a consumer, which receives messages.

        ``visibility_timeout``, in seconds, overrides that of the queue. With ``keep_leases`` a background thread
        extends the lease of each received message until the message is settled. The thread also stops extending when
        nothing refers to the message or its batch any more, when settling failed and you received again, and when the
        consumer is closed. Up to ``prefetch`` messages are claimed ahead of a receive. Raises InvalidSetting.
        """
        return consumer_class(self._context.hooks)(
            [self._context],
            codec=codec,
            name=name,
            visibility_timeout=visibility_timeout,
            keep_leases=keep_leases,
            prefetch=prefetch,
        )

    def semaphore(self, name: str) -> Semaphore:
        """Open an existing semaphore (:meth:`shardq.Client.semaphore`) of the queue's store. Raises QueueNotFound."""
        return open_semaphore(self._context.sibling, name)

    # -- what is in it ------------------------------------------------------------------------------------------

    def counts(self) -> QueueCounts:
        """Count the messages by state. Changes while the shards are counted may be missed."""
        return total([state.counts for state in self.shard_states()])

    def shard_states(self) -> tuple[ShardState, ...]:
        """Count the messages by state in each shard that is in use. Raises QueueNotFound."""
        return shard_states(self._context)

    def consumers(self) -> tuple[ConsumerState, ...]:
        """List the consumers of the queue, with the number of messages that each has in flight.

        Listed are live consumers, those that were seen within the last 12 hours and not closed, and all others that
        hold messages. Sorted by name.
        """
        return consumer_states(self._context)

    def peek(self, limit: int = 10, *, codec: Codec = BYTES, blocked: bool = False) -> list[StoredMessage]:
        """Read up to ``limit`` messages in any state, without changing them.

        They come shard by shard, those of a shard in delivery order. With ``blocked`` only those that were given up
        and hold up their groups.
        """
        check_number("limit", limit, 1, MANY, whole=True)
        look = browse_blocked if blocked else browse
        return list(look(self._context, check_codec(codec), limit))

    def select(self, where: MessageFilter, *, codec: Codec = BYTES) -> Iterator[StoredMessage]:
        """Iterate over the messages that a filter means, as :meth:`peek` shows them, without changing them.

        It reads all of the queue, page by page. For a filter of messages in flight, or of those that block their
        groups, it reads only these.
        """
        return select(self._context, check_codec(codec), check_filter(where))

    def get(
        self, message_id: str | None = None, *, unique_key: str | None = None, codec: Codec = BYTES
    ) -> StoredMessage | None:
        """Read one message in any state, also a processed one; None when it is not stored. Raises InvalidReceipt.

        With a ``unique_key`` instead of an id: the message that has it, which waits or is in flight.
        """
        check_codec(codec)
        identity = self._identity(message_id, unique_key)
        found = None if identity is None else find(self._context, codec, identity)
        return found and next(with_results(self._context, codec, [found]))

    def trace(self, message_id: str) -> list[Event]:
        """Return the events of a message, in order, as far as its queue has kept them. Raises InvalidReceipt.

        The queue keeps them for the time of its setting ``events``. Events before and after a move are one trace,
        which either id finds. They are written a moment after the action that they record. This call waits for the
        events of the same client only. Events that a process had not written when it died are missing.
        """
        return trace(self._context, MessageId.parse(message_id, self.name))

    def open(self, message_id: str) -> io.BufferedReader:
        """Open the large body of a message, in any state, as :meth:`shardq.Message.open` does.

        Raises InvalidReceipt, InvalidMessage for a body that is not large, and BodyNotFound when there is no such
        message.
        """
        found = self.get(message_id)
        if found is None:
            raise BodyNotFound(f"message {message_id} is not stored: it has left the queue")
        if found.large is None:
            raise no_large_body(message_id)
        return open_body(self._context, found.large, message_id)

    def edit(self, message_id: str, *, codec: Codec = BYTES, **changes: Unpack[EditArguments]) -> str:
        """Change a message that waits, now or for later, in one atomic step; returns its new id.

        The changes are ``body``, ``headers`` (all of them), ``priority``, ``due``, and ``delay`` in seconds from now.
        Properties that are None or left out stay, also its keys and the time at which it expires. The new id takes the
        place of the old one, and its deliveries count from 0.

        Raises MessageNotPending, with nothing changed, when the message is in flight, processed or not stored, also
        when a consumer receives it at the same moment. Raises InvalidReceipt, InvalidMessage or MessageTooLarge. Raises
        UnsupportedByStore for a message of a group on Cassandra, and for all on a standalone MongoDB server.
        """
        return str(edit(self._context, MessageId.parse(message_id, self.name), changes, check_codec(codec)))

    def remove(self, message_id: str | None = None, *, unique_key: str | None = None) -> bool:
        """Remove one message in any state, also a processed one; False when it is not stored. Raises InvalidReceipt.

        If a consumer holds it, its ack succeeds and changes nothing. With a ``unique_key``: the message that has it.
        """
        while (identity := self._identity(message_id, unique_key)) is not None:
            removed = remove(self._context, identity)
            if removed or message_id is not None:  # else another message has the key by now
                return removed
        return False

    def remove_where(self, where: MessageFilter, *, progress: Callable[[int], None] | None = None) -> int:
        """Remove the messages that a filter means, as :meth:`remove` does each; returns how many.

        ``progress`` is called with the number so far. Raises OutcomeUnknown when the store fails after some of them: to
        repeat it removes the rest.
        """
        return remove_selected(self._context, (message.id for message in self.select(where)), progress)

    def purge(self) -> int:
        """Remove all messages, also those in flight, but not the history; returns how many.

        Messages that an unanswered attempt removed are not counted. Raises OutcomeUnknown if it fails midway.
        """
        return purge(self._context)

    def history(
        self, *, since: datetime | None = None, until: datetime | None = None, codec: Codec = BYTES
    ) -> Iterator[StoredMessage]:
        """Iterate over the messages acked at or after ``since`` and before ``until``, in the order of their acks.

        The queue keeps acked messages for its ``history_retention``. The default, 0, keeps none.
        """
        found = browse_history(self._context, check_codec(codec), *period_of(self._context, since, until))
        return with_results(self._context, codec, found)

    def replay(
        self, *, since: datetime | None = None, until: datetime | None = None, to: str | None = None
    ) -> int:
        """Send copies of the messages that were acked in a period to this queue, or to queue ``to``; returns how many.

        Raises QueuePaused or MessageTooLarge, and OutcomeUnknown when the store fails after some copies; those that
        were sent before the error stay. A second call sends further copies.
        """
        target = self._context if to is None else self._context.sibling(to)
        return replay(self._context, target, *period_of(self._context, since, until))

    # -- what can be done to it ---------------------------------------------------------------------------------

    def alter(self, **changes: Unpack[QueueSettingsArguments]) -> QueueSettings:
        """Change settings while the queue is in use; every client follows within about a second.

        With another layout (``shards``, ``time_shards``, ``time_shard_seconds``) new messages go to the new shards.
        Consumers read the old shards until they are empty. Raises InvalidSetting, with nothing changed, and
        OutcomeUnknown when the store fails after the settings were changed.
        """
        return alter_queue(self._context, changes)

    def pause(self, *, delivery: bool = True, sends: bool = False) -> None:
        """Stop deliveries, so that consumers see an empty queue. With ``sends``, sending raises QueuePaused.

        Each call sets both. Messages in flight can still be acked. Other processes follow within about a second.
        Raises InvalidSetting when both are False.
        """
        if not delivery and not sends:
            raise InvalidSetting(
                "pause(delivery=False, sends=False) changes nothing: pause at least one of them"
            )
        self._context.live.alter({"delivery_paused": delivery, "sends_paused": sends})

    def resume(self) -> None:
        """Allow deliveries and sends again."""
        self._context.live.alter({"delivery_paused": False, "sends_paused": False})

    def redrive(
        self,
        limit: int | None = None,
        *,
        where: MessageFilter | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Move up to ``limit`` of this queue's dead letters back to it; returns how many.

        With ``where`` only those that the filter means. A group that is blocked continues only if all messages that
        block it are meant. ``progress`` is called with the number so far. Letters that another redrive or a consumer
        holds stay, and a warning is logged: repeat it when those have ended, or their leases have expired.

        Those that block their groups keep their places. All are new messages: they have the headers that they were
        sent with, and deliveries count from 0. Raises QueuePaused while the queue's sends are paused. Raises
        QueueNotFound for a dead-letter queue: redrive the queue that its messages came from. Raises MessageTooLarge
        when some are above the queue's limit; all others were moved then. Raises OutcomeUnknown when it fails after
        some of them: to repeat it moves the rest.
        """
        if limit is not None:
            check_number("limit", limit, 1, MANY, whole=True)
        wanted = None if where is None else check_filter(where, held=False)
        return redrive(self._context, limit if limit is not None else MANY, wanted, progress)

    def sweep(self) -> int:
        """Remove leftovers, and messages whose ``ttl`` or ``retention`` has ended.

        Returns how many things were removed. It reads everything that is stored, so it also finds messages that a
        wrong hint hides. About once a minute a live consumer removes leftovers automatically, but leaves expired
        messages until they would be delivered. With ``dead_letter_expired`` they become dead letters, here and there.
        Parts of large bodies that no message of the store has go too, when they are two hours old.
        """
        return sweep(self._context)

    def evict(self, consumer: str, *, force: bool = False) -> int:
        """Release at once the messages that a dead consumer holds, by its name or id.

        Returns how many messages that were. Their deliveries count, as at the end of their leases. Live consumers of
        this name keep their messages, unless ``force``. If one comes back after all, its ack raises LeaseLost.

        Raises ConsumerNotFound. Raises ConsumerAlive, with nothing released, when the consumer may be at work: it was
        seen less than 16 seconds ago, or its leases are younger than half of its visibility timeout.
        """
        return evict(self._context, consumer, force=force)

    # -- by receipt ---------------------------------------------------------------------------------------------

    def ack(
        self, receipts: Iterable[str], *, results: Mapping[str, Any] | None = None, codec: Codec = BYTES
    ) -> None:
        """Finish messages by their receipts, in any process. It can be repeated.

        ``results`` are those of single messages, by receipt, as in :meth:`shardq.Message.ack`; ``codec`` encodes them.
        When one cannot be kept, no message is acked. That of a message that was acked before changes nothing.

        Raises InvalidReceipt, with nothing acked. Raises LeaseLost when all others were acked; its ``messages`` are the
        receipts that are no longer valid. A message that is not stored any more counts as acked before, but for within
        :meth:`shardq.Client.transaction`.
        """
        ack_receipts(self._context, receipts, results, check_codec(codec))

    def release(self, receipts: Iterable[str], *, delay: float = 0.0) -> None:
        """Release messages by their receipts, to be redelivered after ``delay`` seconds. Errors as in :meth:`ack`."""
        release_receipts(self._context, receipts, delay)

    def extend(self, receipts: Iterable[str], seconds: float) -> None:
        """Extend the leases of messages by their receipts, to ``seconds`` from now. Errors as in :meth:`ack`."""
        extend_receipts(self._context, receipts, seconds)

    def _identity(self, message_id: str | None, unique_key: str | None) -> MessageId | None:
        """Return the given id, or that of the message that has a unique key; None when no message has it."""
        if (message_id is None) == (unique_key is None):
            raise InvalidReceipt(
                f"message_id={shown(message_id)} and unique_key={shown(unique_key)}: give one of them"
            )
        if message_id is not None:
            return MessageId.parse(message_id, self.name)
        owner = UniqueKeys(self._context).owner(check_unique_key(unique_key))
        return MessageId.parse(owner.id) if owner.id else None

    def __repr__(self) -> str:
        return f"<Queue {self.name}>"
