"""A message that was received, and one that was looked at."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Protocol

import msgspec

from shardq.clock import to_datetime
from shardq.codec import Codec
from shardq.held import HeldSlice, Selection
from shardq.outgoing_message import Headers
from shardq.receipt import MessageId, Receipt
from shardq.storage.requests import EntryState

__all__ = ["Message", "Settler", "StoredMessage"]


class StoredMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message as it is stored, seen without being received: by peek, get or history."""

    id: str
    body: Any
    headers: Headers
    priority: int
    state: EntryState
    due: datetime  # ready, delayed: deliverable from; in flight: end of its lease; processed: when it was acked
    enqueued_at: datetime
    deliveries: int
    dedupe_key: str | None


class Settler(Protocol):
    """What received messages are settled by. Each call settles all that is still held, then raises LeaseLost."""

    def ack(self, selections: Sequence[Selection]) -> None:
        """Finish messages."""
        ...

    def release(self, selections: Sequence[Selection], delay: float) -> None:
        """Give messages back, deliverable again after so many seconds."""
        ...

    def give_back(self, selections: Sequence[Selection]) -> None:
        """Give messages back that nobody has started to work on, without counting this delivery."""
        ...

    def extend(self, selections: Sequence[Selection], seconds: float) -> None:
        """Hold messages for so many seconds from now on."""
        ...

    def forward(self, selections: Sequence[Selection], queue: str, *, atomic: bool) -> None:
        """Move messages to another queue of the same client."""
        ...

    def dead_letter(self, selections: Sequence[Selection], reason: str) -> None:
        """Move messages to the dead-letter queue."""
        ...

    def replace(self, selection: Selection, value: Any, delay: float) -> None:
        """Exchange messages for new ones with another body."""
        ...

    def messages(self, selection: Selection) -> list[Message]:
        """The selected messages as an application sees them."""
        ...

    def bodies(self, selection: Selection) -> list[Any]:
        """The selected messages' bodies."""
        ...


class Message:
    """A received message: held for its consumer until it is acked, released, or its lease is over.

    Not made by applications: they come out of a consumer's batches.
    """

    __slots__ = ("_codec", "_held", "_position", "_settler")

    def __init__(self, held: HeldSlice, position: int, codec: Codec, settler: Settler) -> None:
        self._held, self._position, self._codec, self._settler = held, position, codec, settler

    @property
    def id(self) -> str:
        """The id that ``send`` returned."""
        return str(self._message_id)

    @property
    def receipt(self) -> str:
        """Id and claim together, as text: another process can ack with it, see :meth:`shardq.Queue.ack`."""
        return str(Receipt(self._message_id, self._held.token))

    @property
    def body(self) -> Any:
        """What was sent: bytes, or what the consumer's codec makes of them; raises InvalidMessage when it cannot."""
        return self._codec.decode(self._held.messages.bodies[self._position])

    @property
    def raw(self) -> bytes:
        """The body as it is stored."""
        return self._held.messages.bodies[self._position]

    @property
    def headers(self) -> Headers:
        """The headers that were sent; empty when there were none."""
        headers = self._held.messages.headers
        return dict(headers[self._position] or {}) if headers else {}

    @property
    def dedupe_key(self) -> str | None:
        """The key that a second message of the same kind is recognised by."""
        keys = self._held.messages.dedupe_keys
        return keys[self._position] if keys else None

    @property
    def priority(self) -> int:
        """0 first .. 9 last."""
        return self._held.bundle.priority

    @property
    def due(self) -> datetime:
        """The moment from which it could be delivered."""
        return to_datetime(self._held.bundle.due)

    @property
    def enqueued_at(self) -> datetime:
        """The moment at which it was sent."""
        return to_datetime(self._held.bundle.enqueued_at)

    @property
    def deliveries(self) -> int:
        """How often it has been delivered, this time included."""
        return self._held.deliveries

    @property
    def lease_until(self) -> datetime:
        """The moment, by the store's clock, from which it can be delivered to others."""
        return to_datetime(self._held.lease_until)

    def ack(self) -> None:
        """Finish the message. Repeating it is harmless. Raises LeaseLost when it is somebody else's by now."""
        self._settler.ack([self._selection])

    def release(self, *, delay: float = 0.0, body: Any = None) -> None:
        """Give the message back, to be delivered again after ``delay`` seconds, with deliveries + 1.

        With a ``body`` it goes back as a new message with that body, the same headers and priority, and
        deliveries from 0; old and new are exchanged in one atomic step. Raises LeaseLost when it is somebody
        else's by now.
        """
        if body is None:
            self._settler.release([self._selection], delay)
        else:
            self._settler.replace(self._selection, body, delay)

    def extend(self, seconds: float) -> None:
        """Hold the message for so many seconds from now on. Raises LeaseLost when it is somebody else's by now."""
        self._settler.extend([self._selection], seconds)

    def forward(self, queue: str, *, atomic: bool = True) -> None:
        """Move the message to another queue of the same client: ack here and send there in one atomic step.

        Where the store cannot do that it raises UnsupportedByStore, unless ``atomic=False`` accepts send,
        then ack: after a crash between the two the message is in both queues, and moving it again within 7 days
        completes the move. Raises LeaseLost when it is somebody else's by now.
        """
        self._settler.forward([self._selection], queue, atomic=atomic)

    def dead_letter(self, reason: str) -> None:
        """Move the message to the dead-letter queue now, whatever its deliveries. Raises LeaseLost."""
        self._settler.dead_letter([self._selection], reason)

    @property
    def _message_id(self) -> MessageId:
        return self._held.message_id(self._position)

    @property
    def _selection(self) -> Selection:
        return self._held.select([self._position])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message):
            return NotImplemented
        return self._held is other._held and self._position == other._position

    def __hash__(self) -> int:
        return hash((id(self._held), self._position))

    def __repr__(self) -> str:
        return f"<Message {self.id} deliveries={self.deliveries}>"
