"""Sending messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, cast

import msgspec

from shardq.clock import seconds, to_datetime
from shardq.closing import Closing
from shardq.codec import BYTES, Codec
from shardq.delivery.coalescer import Coalescer
from shardq.delivery.context import QueueContext
from shardq.delivery.outgoing import (
    PreparedMessage,
    SendOptions,
    prepare,
    prepare_options,
    size_of,
    too_large,
)
from shardq.delivery.sent_ids import SentIds
from shardq.delivery.writing import Written, write
from shardq.errors import InvalidSetting, OutcomeUnknown, PartialSend
from shardq.message import DEFAULT_PRIORITY, OutgoingMessage
from shardq.settings import check_number
from shardq.storage.bundle_data import HeaderValue

__all__ = ["Producer"]

BUNDLE_MESSAGES = 500
BUNDLE_BYTES = 262_144


class Producer(Closing):
    """Sends messages to one queue. Safe to use from several threads.

    Made by :meth:`shardq.Queue.producer`. Nothing is buffered: when ``send`` or ``send_many`` returns, the
    messages are stored; closing a producer has nothing left to do.

    >>> queue = shardq.connect(url).create_queue("letters")
    >>> with queue.producer() as producer:
    ...     first = producer.send(b"dear", priority=1, headers={"language": "en"})
    ...     rest = producer.send_many([b"sir", b"or", b"madam"])
    >>> len(rest), queue.get(first).body
    (3, b'dear')
    """

    def __init__(
        self,
        context: QueueContext,
        *,
        codec: Codec = BYTES,
        linger: float = 0.0,
        bundle_messages: int = BUNDLE_MESSAGES,
        bundle_bytes: int = BUNDLE_BYTES,
    ) -> None:
        check_number("linger", linger, 0.0, 60.0)
        check_number("bundle_messages", bundle_messages, 1, 10_000, whole=True)
        check_number("bundle_bytes", bundle_bytes, 1, 2**24, whole=True)
        self._context, self._codec = context, codec
        self._bundle_messages, self._bundle_bytes = bundle_messages, bundle_bytes
        self._coalescer = Coalescer(
            self._store_singles, linger=linger, limit=bundle_messages, max_bytes=bundle_bytes
        )
        self._closed = False

    def send(
        self,
        body: Any,
        *,
        priority: int = DEFAULT_PRIORITY,
        delay: float = 0.0,
        due: datetime | None = None,
        headers: Mapping[str, HeaderValue] | None = None,
        dedupe_key: str | None = None,
    ) -> str:
        """Store one message and return its id.

        ``delay`` is seconds from now by the store's clock, ``due`` an aware ``datetime``; a moment that has
        passed means now. With a ``dedupe_key`` that was used within the queue's ``dedupe_window`` nothing is
        stored, and the id of the message that has the key is returned.

        Raises InvalidMessage or MessageTooLarge (nothing stored), QueuePaused, QueueNotFound,
        StoreUnavailable (nothing stored), or OutcomeUnknown after repeating the attempt for a while.
        """
        message = OutgoingMessage(
            body=body, priority=priority, delay=delay, due=due, headers=headers, dedupe_key=dedupe_key
        )
        self._check_open()
        return self._coalescer.submit(self._prepare(message.body, self._options(message)))

    def send_many(
        self,
        bodies: Iterable[Any],
        *,
        priority: int = DEFAULT_PRIORITY,
        delay: float = 0.0,
        due: datetime | None = None,
        headers: Mapping[str, HeaderValue] | None = None,
    ) -> Sequence[str]:
        """Store many messages, and return their ids in order.

        ``bodies`` is any iterable; it is drawn from one bundle at a time, so it may be endless work from a
        generator. The options hold for every body; an :class:`~shardq.OutgoingMessage` among them brings its
        own.

        It stops at the first bundle that cannot be stored or holds a message that is refused, and raises
        PartialSend, which names what is stored and what is not. Only where nothing is stored for certain and
        ``bodies`` is a sequence, so that the caller still has everything, it raises the error itself, as
        :meth:`send` does.
        """
        self._check_open()
        shared = OutgoingMessage(body=None, priority=priority, delay=delay, due=due, headers=headers)
        options = self._options(shared)
        items = iter(bodies)
        sent = SentIds()
        while True:
            chunk: list[Any] = []
            try:
                messages = self._draw(items, options, chunk)
                if not chunk:
                    return sent
                written = self._write(chunk, messages)
            except Exception as error:
                if not sent and isinstance(bodies, Sequence):
                    raise
                unsent = [_outgoing(item, shared) for item in chunk]
                raise self._partial(error, sent, unsent, bodies, items, shared) from error
            stored, unsent = _sort(chunk, messages, written)
            sent.extend(stored)
            if written.error is not None:
                if (
                    not sent
                    and isinstance(bodies, Sequence)
                    and not isinstance(written.error, OutcomeUnknown)
                ):
                    raise written.error
                raise self._partial(written.error, sent, unsent, bodies, items, shared) from written.error

    def close(self) -> None:
        """Refuse further sends. Everything that was sent is stored already."""
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidSetting(f"this producer of queue {self._context.name!r} is closed: make another one")

    def _options(self, message: OutgoingMessage) -> SendOptions:
        return prepare_options(message, self._context.name)

    def _prepare(self, body: Any, options: SendOptions) -> PreparedMessage:
        limit = self._context.settings.max_message_bytes
        return prepare(body, options, self._codec, limit, self._context.name)

    def _draw(self, items: Iterator[Any], shared: SendOptions, chunk: list[Any]) -> list[PreparedMessage]:
        """One bundle's worth of messages; what was drawn is in the chunk even when it raises."""
        encode, limit, name = self._codec.encode, self._context.settings.max_message_bytes, self._context.name
        room = limit - size_of(shared.headers)
        messages: list[PreparedMessage] = []
        size = 0
        for item in islice(items, self._bundle_messages):  # the hot loop of a bulk send
            chunk.append(item)
            if isinstance(item, OutgoingMessage):
                message = prepare(item.body, self._options(item), self._codec, limit, name)
                body = message.body
            else:
                body = encode(item)
                if len(body) > room:
                    raise too_large(len(body) + limit - room, limit, name)
                message = PreparedMessage(body, shared)
            messages.append(message)
            size += len(body)
            if size >= self._bundle_bytes:
                break
        return messages

    def _write(self, originals: Sequence[Any], messages: Sequence[PreparedMessage]) -> Written:
        hooks = self._context.hooks
        if hooks is None:
            return write(self._context, messages)
        outgoing = [_described(item, message) for item, message in zip(originals, messages, strict=True)]
        hooks.before_send(self._context.name, outgoing)
        written = write(self._context, messages)
        stored = [
            (message, identity) for message, identity in zip(outgoing, written.ids, strict=True) if identity
        ]
        if stored:
            hooks.after_send(self._context.name, [pair[0] for pair in stored], [pair[1] for pair in stored])
        return written

    def _store_singles(self, messages: Sequence[PreparedMessage]) -> Written:
        return self._write([message.body for message in messages], messages)

    def _partial(
        self,
        error: Exception,
        sent: SentIds,
        unsent: list[OutgoingMessage],
        bodies: Iterable[Any],
        items: Iterator[Any],
        shared: OutgoingMessage,
    ) -> PartialSend:
        if isinstance(bodies, Sequence):
            unsent += [_outgoing(item, shared) for item in items]
        text = (
            f"{len(sent)} messages are stored in queue {self._context.name!r}, {len(unsent)} are not: {error}"
        )
        return PartialSend(f"{text}; send `error.unsent` again", sent, unsent)


def _outgoing(item: Any, shared: OutgoingMessage) -> OutgoingMessage:
    return item if isinstance(item, OutgoingMessage) else msgspec.structs.replace(shared, body=item)


def _described(item: Any, message: PreparedMessage) -> OutgoingMessage:
    """A message as hooks see it."""
    if isinstance(item, OutgoingMessage):
        return item
    options = message.options
    return OutgoingMessage(
        body=item,
        priority=options.priority,
        delay=seconds(options.delay),
        due=None if options.due is None else to_datetime(options.due),
        headers=options.headers,
        dedupe_key=options.dedupe_key,
    )


def _sort(
    chunk: Sequence[Any], messages: Sequence[PreparedMessage], written: Written
) -> tuple[Sequence[str], list[OutgoingMessage]]:
    """The ids of what was stored, and the rest as messages that keep their ids."""
    if written.error is None:
        return cast("Sequence[str]", written.ids), []
    stored = [identity for identity in written.ids if identity is not None]
    drafts = {place: draft for draft in written.pending for place in draft.places}
    unsent = []
    for place, identity in enumerate(written.ids):
        if identity is None:
            item, options = chunk[place], messages[place].options
            body = item.body if isinstance(item, OutgoingMessage) else item
            unsent.append(drafts[place].outgoing(place, body, options))
    return stored, unsent
