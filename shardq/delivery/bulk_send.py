"""Sending many messages with one call: drawn by bundles, stored several at a time, answered in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import msgspec

from shardq.codec import Codec
from shardq.delivery.context import QueueContext
from shardq.delivery.outgoing import PreparedMessage, describe, prepare, prepare_options, size_of, too_large
from shardq.delivery.sent_ids import SentIds
from shardq.delivery.window import Chunk, Window
from shardq.delivery.writing import Written, plan, tell_stored
from shardq.errors import OutcomeUnknown, PartialSend
from shardq.message import OutgoingMessage

__all__ = ["BulkSend", "BundleLimits"]


class BundleLimits(msgspec.Struct, frozen=True):
    """How large a bundle may get: messages, and bytes of bodies."""

    messages: int
    size: int


class BulkSend:
    """One call of ``send_many``.

    It stops drawing at the first failure; what is on its way then is waited for, so that it is known of every
    message whether it is stored.
    """

    def __init__(
        self,
        context: QueueContext,
        bodies: Iterable[Any],
        shared: OutgoingMessage,
        *,
        codec: Codec,
        limits: BundleLimits,
    ) -> None:
        self._context, self._codec, self._limits = context, codec, limits
        self._bodies, self._items = bodies, iter(bodies)
        self._shared, self._options = shared, prepare_options(shared, context.name)
        self._sent = SentIds()
        self._unsent: list[OutgoingMessage] = []
        self._error: Exception | None = None
        self._unknown = False  # something that is not confirmed may be stored

    def run(self) -> SentIds:
        """Store everything; raises PartialSend, or the error itself where that tells as much."""
        refused: list[Any] = []
        with Window(self._context) as window:
            while (chunk := self._next(refused)) is not None:
                self._collect(window.add(chunk))
            self._collect(window.rest())
        if self._error is None:
            return self._sent
        self._unsent += map(self._outgoing, refused)
        if not self._sent and isinstance(self._bodies, Sequence) and not self._unknown:
            raise self._error
        raise self._partial(self._error) from self._error

    def _next(self, refused: list[Any]) -> Chunk | None:
        """The next bundle's worth; None at the end or after a failure. Items that failed here are ``refused``."""
        if self._error is not None:
            return None
        items: list[Any] = []
        try:
            messages = self._draw(items)
            return self._chunk(items, messages) if items else None
        except Exception as error:
            self._error = error
            refused += items
            return None

    def _draw(self, chunk: list[Any]) -> list[PreparedMessage]:
        """One bundle's worth of messages; what was drawn is in the chunk even when it raises."""
        encode, limit, name = self._codec.encode, self._context.settings.max_message_bytes, self._context.name
        shared, most = self._options, self._limits.size
        room = limit - size_of(shared.headers)
        messages: list[PreparedMessage] = []
        size = 0
        for item in islice(self._items, self._limits.messages):  # the hot loop of a bulk send
            chunk.append(item)
            if isinstance(item, OutgoingMessage):
                message = prepare(item.body, prepare_options(item, name), self._codec, limit, name)
                body = message.body
            else:
                body = encode(item)
                if len(body) > room:
                    raise too_large(len(body) + limit - room, limit, name)
                message = PreparedMessage(body, shared)
            messages.append(message)
            size += len(body)
            if size >= most:
                break
        return messages

    def _chunk(self, items: list[Any], messages: list[PreparedMessage]) -> Chunk:
        chunk = Chunk(items, messages, plan(self._context, messages))
        if self._context.hooks is not None:
            self._context.hooks.before_send(self._context.name, _described(chunk))
        return chunk

    def _collect(self, results: Iterable[tuple[Chunk, Written]]) -> None:
        for chunk, written in results:
            self._sent.extend(written.stored)
            if written.error is not None:
                self._error = self._error or written.error
                self._unknown = self._unknown or isinstance(written.error, OutcomeUnknown)
                self._unsent += _unsent(chunk, written)
            self._tell_stored(chunk, written)

    def _tell_stored(self, chunk: Chunk, written: Written) -> None:
        """Call the hook; its error ends the call, what is stored stays so."""
        if self._context.hooks is not None:
            try:
                tell_stored(self._context, _described(chunk), written)
            except Exception as error:
                self._error = self._error or error

    def _partial(self, error: Exception) -> PartialSend:
        if isinstance(self._bodies, Sequence):
            self._unsent += map(self._outgoing, self._items)
        text = (
            f"{len(self._sent)} messages are stored in queue {self._context.name!r}, "
            f"{len(self._unsent)} are not: {error}"
        )
        return PartialSend(f"{text}; send `error.unsent` again", self._sent, self._unsent)

    def _outgoing(self, item: Any) -> OutgoingMessage:
        return item if isinstance(item, OutgoingMessage) else msgspec.structs.replace(self._shared, body=item)


def _described(chunk: Chunk) -> list[OutgoingMessage]:
    return [describe(item, message) for item, message in zip(chunk.items, chunk.messages, strict=True)]


def _unsent(chunk: Chunk, written: Written) -> Iterator[OutgoingMessage]:
    """What was not confirmed, as messages that keep the ids under which they may be stored already."""
    drafts = {place: draft for draft in written.pending for place in draft.places}
    for place, identity in enumerate(written.ids):
        if identity is None:
            item = chunk.items[place]
            body = item.body if isinstance(item, OutgoingMessage) else item
            yield drafts[place].outgoing(place, body, chunk.messages[place].options)
