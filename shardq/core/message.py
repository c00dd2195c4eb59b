"""A message that was received, the object that settles it, and a message that was read without being received."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

import msgspec

from shardq.base.clock import to_datetime
from shardq.base.codec import Codec
from shardq.base.large_body import LargeBody, not_in_memory
from shardq.base.outgoing_message import Headers, HeaderValue, group_of
from shardq.base.receipt import MessageId, Receipt
from shardq.core.held import HeldSlice, Selection, SettleState
from shardq.core.settings import check_uncounted
from shardq.storage.requests import EntryState

__all__ = ["Message", "Settler", "StoredMessage"]


class StoredMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message as peek, get and history show it, without receiving it."""

    id: str
    body: Any
    headers: Headers
    priority: int
    state: EntryState
    due: datetime  # ready, delayed: deliverable from; in flight: end of its lease; processed: when it was acked
    enqueued_at: datetime
    deliveries: int
    dedupe_key: str | None
    expires_at: datetime | None = None  # not delivered from then on; None: it has no ttl
    group: str | None = None
    unique_key: str | None = None
    large: LargeBody | None = None  # its body is stored in parts, and `body` is None: see `Queue.open`
    result: Any = None  # processed: what it was acked with, if its queue keeps that
    owner: str | None = None  # in flight: the name of the consumer that holds it, or else its id
    blocked: str | None = None  # why it was given up and holds up its group; None: it does not


class Settler(Protocol):
    """Settles received messages. Each call settles all that is still held, then raises LeaseLost."""

    def ack(self, selections: Sequence[Selection], results: Sequence[tuple[Selection, Any]] = ()) -> None:
        """Finish messages, single ones of them with a result."""

    def release(self, selections: Sequence[Selection], delay: float, reason: str | None) -> None:
        """Release messages, deliverable again after ``delay`` seconds; those delivered too often are dead letters."""

    def return_uncounted(self, selections: Sequence[Selection], delay: float) -> None:
        """Release messages without counting this delivery, deliverable again after ``delay`` seconds."""

    def is_last(self, held: HeldSlice) -> bool:
        """Return whether its messages become dead letters if they are released."""

    def is_lost(self, held: HeldSlice, position: int) -> bool:
        """Return whether one of its messages is held no longer, or its lease has expired."""

    def extend(self, selections: Sequence[Selection], seconds: float) -> None:
        """Hold messages for ``seconds`` from now."""

    def forward(
        self,
        selections: Sequence[Selection],
        queue: str,
        *,
        body: Any = None,
        headers: Mapping[str, HeaderValue] | None = None,
        delay: float = 0.0,
        priority: int | None = None,
        atomic: bool,
    ) -> None:
        """Move messages to another queue of the same client.

        Arguments that are None leave their part of the message unchanged.
        """

    def dead_letter(self, selections: Sequence[Selection], reason: str) -> None:
        """Move messages to the dead-letter queue."""

    def replace(self, selection: Selection, value: Any, delay: float, *, keeps_due: bool = False) -> None:
        """Exchange messages for new ones with another body, which may keep their due time."""

    def note(self, selection: Selection, text: str, *, failed: bool) -> None:
        """Record a note about messages in the log of their queue's events."""

    def messages(self, selection: Selection) -> list[Message]:
        """Return the selected messages as an application sees them."""

    def bodies(self, selection: Selection) -> list[Any]:
        """Return the selected messages' bodies."""

    def open(self, held: HeldSlice) -> io.BufferedReader:
        """Open the large body of the only message of a slice, as a file."""


class Message:
    """A received message. Its consumer holds it until it is acked or released, or until its lease expires.

    Messages come from a consumer's batches; applications do not make them.
    """

    __slots__ = ("_codec", "_held", "_position", "_settler")

    def __init__(self, held: HeldSlice, position: int, codec: Codec, settler: Settler) -> None:
        self._held, self._position, self._codec, self._settler = held, position, codec, settler

    @property
    def id(self) -> str:
        """The id that ``send`` returned."""
        return str(self._message_id)

    @property
    def queue(self) -> str:
        """The name of the queue that the message is from."""
        return self._held.shard.queue

    @property
    def receipt(self) -> str:
        """The id and the claim, as text. Another process can ack with it: see :meth:`shardq.Queue.ack`."""
        return str(Receipt(self._message_id, self._held.token))

    @property
    def body(self) -> Any:
        """The body, decoded by the consumer's codec.

        Raises InvalidMessage when the codec cannot read it, and for a body that is :attr:`large`.
        """
        return self._codec.decode(self.raw)

    @property
    def raw(self) -> bytes:
        """The body as it is stored, in bytes. Raises InvalidMessage for a body that is :attr:`large`."""
        messages = self._held.messages
        if messages.large is not None:
            raise not_in_memory(self.id, messages.large)
        return messages.bodies[self._position]

    @property
    def large(self) -> LargeBody | None:
        """The description of a body that is stored in parts and read with :meth:`open`; None for any other body."""
        return self._held.messages.large

    @property
    def headers(self) -> Headers:
        """The headers that the message was sent with; empty when there were none."""
        headers = self._held.messages.headers
        return dict(headers[self._position] or {}) if headers else {}

    @property
    def dedupe_key(self) -> str | None:
        """The dedupe key that the message was sent with."""
        keys = self._held.messages.dedupe_keys
        return keys[self._position] if keys else None

    @property
    def group(self) -> str | None:
        """The group that the message was sent with. None of its later ones is delivered before this one is settled.

        In a queue with ``group_concurrency`` that is so within each :attr:`lane` of the group.
        """
        return group_of(self._held.bundle.group)

    @property
    def lane(self) -> str | None:
        """A name of the part of the group that is in order, which is all of it without ``group_concurrency``."""
        return self._held.bundle.group or None

    @property
    def unique_key(self) -> str | None:
        """The unique key that the message was sent with, and has."""
        return self._held.messages.unique_key

    @property
    def priority(self) -> int:
        """The priority, from 0 (first) to 9 (last)."""
        return self._held.bundle.priority

    @property
    def due(self) -> datetime:
        """When the message became deliverable."""
        return to_datetime(self._held.bundle.due)

    @property
    def enqueued_at(self) -> datetime:
        """When the message was sent. Moves do not change it."""
        return to_datetime(self._held.bundle.enqueued_at)

    @property
    def expires_at(self) -> datetime | None:
        """From when on the message is not delivered again; None if it was sent without ``ttl``.

        Its holder can still ack it then.
        """
        moment = self._held.bundle.expires_at
        return None if moment is None else to_datetime(moment)

    @property
    def deliveries(self) -> int:
        """How often the message has been delivered, this time included."""
        return self._held.deliveries

    @property
    def last_delivery(self) -> bool:
        """True when the message has had its queue's ``max_deliveries``: if it is released, it becomes a dead letter.

        Raises StoreUnavailable or QueueNotFound when the settings have to be read again and cannot.
        """
        return self._settler.is_last(self._held)

    @property
    def lease_until(self) -> datetime:
        """When the lease expires, by the store's clock. From then on the message can be redelivered."""
        return to_datetime(self._held.until(self._position))

    @property
    def settled(self) -> bool:
        """True once the message was acked, released or moved, by this consumer."""
        return not self._held.in_states([self._position], [SettleState.OPEN, SettleState.LOST])

    @property
    def released(self) -> bool:
        """True once the message was released, by this consumer."""
        return bool(self._held.in_states([self._position], [SettleState.RELEASED]))

    @property
    def lost(self) -> bool:
        """True when its lease has expired, or was taken away as far as is known here.

        Then another consumer may have the message. Raises StoreUnavailable when the store's time has to be asked for,
        and no server answers.
        """
        return self._settler.is_lost(self._held, self._position)

    def ack(self, *, result: Any = None) -> None:
        """Finish the message: it is never delivered again. It can be repeated.

        The ``result`` is kept as long as the message is in the history, in a queue with ``keep_results``:
        :meth:`shardq.Queue.get` and :meth:`shardq.Queue.history` show it. The consumer's codec encodes it, to 64 KiB at
        most. None is not a result. It is stored before the message is acked.

        Raises LeaseLost when the message is no longer held by this consumer. Raises InvalidSetting when the queue keeps
        no results, InvalidMessage or MessageTooLarge for the result; the message is not acked then.
        """
        self._settler.ack([self._selection], [] if result is None else [(self._selection, result)])

    def release(
        self, *, delay: float = 0.0, body: Any = None, reason: str | None = None, count: bool = True
    ) -> None:
        """Release the message: it is redelivered after ``delay`` seconds.

        If this was its :attr:`last_delivery`, it goes to the dead-letter queue instead, with the ``reason``, or else
        "delivered too often". With ``count=False`` this delivery is not counted, as when the work has not begun.

        With a ``body`` a new message takes its place in one atomic step. It has the same headers, priority and place
        in its group, and its deliveries count from 0. The later messages of its group that were received with it are
        released uncounted. Raises LeaseLost, and InvalidMessage or MessageTooLarge for the body.
        """
        if not count:
            check_uncounted(body=body, reason=reason)
            self._settler.return_uncounted([self._selection], delay)
        elif body is None:
            self._settler.release([self._selection], delay, reason)
        else:
            self._settler.replace(self._selection, body, delay)

    def open(self) -> io.BufferedReader:
        """Open a :attr:`large` body as a file of bytes, to be read, iterated over or sought in.

        Its parts are read from the store when they are needed, a megabyte at a time. Reading raises BodyNotFound when
        a part is not stored, as after an ack. It raises InvalidMessage when the whole body was read and differs from
        the one that was sent. Extend the lease while you read, or receive with ``keep_leases``. Raises InvalidMessage
        for a body that is not large.
        """
        return self._settler.open(self._held)

    def extend(self, seconds: float) -> None:
        """Extend the lease, to ``seconds`` from now. Raises LeaseLost when the message is no longer held."""
        self._settler.extend([self._selection], seconds)

    def forward(
        self,
        queue: str,
        *,
        body: Any = None,
        headers: Mapping[str, HeaderValue] | None = None,
        delay: float = 0.0,
        priority: int | None = None,
        atomic: bool = True,
    ) -> None:
        """Move the message to another queue of the same client: ack it here and send it there, in one atomic step.

        It is unchanged there, but for the ``body``, ``headers`` (all of them) and ``priority`` that are given. It is
        delivered there after ``delay`` seconds. A time at which it expires stays.

        Where the store cannot do that, UnsupportedByStore is raised. With ``atomic=False`` the message is sent first
        and then acked. After a crash in between, or OutcomeUnknown, it may be in both queues; moving it again within 7
        days completes the move. The message that the first attempt has sent stays as it was sent.

        Raises LeaseLost, with nothing sent, when the message is no longer held. Raises QueueNotFound, QueuePaused or
        MessageTooLarge when the other queue does not take it, and InvalidMessage for arguments that cannot be sent.
        """
        self._settler.forward(
            [self._selection],
            queue,
            body=body,
            headers=headers,
            delay=delay,
            priority=priority,
            atomic=atomic,
        )

    def dead_letter(self, reason: str) -> None:
        """Move the message to the dead-letter queue now, however often it was delivered. Raises LeaseLost."""
        self._settler.dead_letter([self._selection], reason)

    def note(self, text: str, *, failed: bool = False) -> None:
        """Note something about the message, to be read with :meth:`shardq.Queue.trace`.

        With ``failed`` it is recorded as the error of this delivery; workers do so. It returns at once, and does
        nothing in a queue that keeps no events. Of a longer text the first 500 characters are kept. Raises
        InvalidSetting when it is not a str.
        """
        self._settler.note(self._selection, text, failed=failed)

    @property
    def _message_id(self) -> MessageId:
        return self._held.message_id(self._position)

    @property
    def _selection(self) -> Selection:
        return Selection(self._held, [self._position])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message):
            return NotImplemented
        return self._held is other._held and self._position == other._position

    def __hash__(self) -> int:
        return hash((id(self._held), self._position))

    def __repr__(self) -> str:
        return f"<Message {self.id} deliveries={self.deliveries}>"
