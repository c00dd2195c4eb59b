"""Sending messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, TypedDict, Unpack

import msgspec

from shardq.base.closing import Closing
from shardq.base.codec import BYTES, Codec, check_codec
from shardq.base.outgoing_message import DEFAULT_PRIORITY, HeaderValue, OnConflict, OutgoingMessage
from shardq.base.texts import kind_of, shown
from shardq.core.context.queue_context import QueueContext
from shardq.core.large.bodies import StoredBody, store_body
from shardq.core.large.collecting import remove_body
from shardq.core.sending.appending import SEND, admit, prepare
from shardq.core.sending.bulk_send import BulkSend, BundleLimits
from shardq.core.sending.prepared import check_bodies, prepare_options
from shardq.core.sending.storing import joined_sends
from shardq.core.settings import check_number
from shardq.errors import Closed, InvalidMessage, OutcomeUnknown

__all__ = ["Producer", "SendArguments"]

BUNDLE_MESSAGES = 500
BUNDLE_BYTES = 262_144


class SendArguments(TypedDict, total=False):
    """The options of a message, as keyword arguments."""

    priority: int
    delay: float
    due: datetime | None
    headers: Mapping[str, HeaderValue] | None
    dedupe_key: str | None
    ttl: float | None
    group: str | None
    unique_key: str | None
    on_conflict: OnConflict


class Producer(Closing):
    """Sends messages to one queue. Safe to use from several threads.

    Made by :meth:`shardq.Queue.producer`. Nothing is buffered: when ``send`` or ``send_many`` returns, the
    messages are stored.

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
        self._context, self._codec = context, check_codec(codec)
        self._limits = BundleLimits(bundle_messages, bundle_bytes)
        self._group_commit = joined_sends(
            context, linger=linger, limit=bundle_messages, max_bytes=bundle_bytes
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
        ttl: float | None = None,
        group: str | None = None,
        unique_key: str | None = None,
        on_conflict: OnConflict = "keep",
    ) -> str:
        """Store one message and return its id.

        ``body`` may be an :class:`~shardq.OutgoingMessage`, which has its own options, or the
        :class:`~shardq.LargeBody` of another message. ``delay`` is in seconds from
        now, by the store's clock. ``due`` is an aware ``datetime``; a moment that has passed means now. A message that
        is not finished ``ttl`` seconds after it became due is not delivered any more. If a message
        with the same ``dedupe_key`` was sent within the queue's ``dedupe_window``, nothing is stored and the id of
        that message is returned. The messages of a ``group`` are delivered in the order of their sends, one after the
        other.

        A message with a ``unique_key`` is stored only while no other message with that key waits or is in flight in
        the queue. If there is one, ``on_conflict`` decides. With "keep" nothing is stored and the id of the other
        message is returned. With "raise" UniqueKeyTaken is raised. With "replace" the message takes the place of the
        other one, which is removed; if that one is in flight, UniqueKeyTaken is raised. The key is free again as soon
        as its message has left the queue.

        Raises InvalidMessage, MessageTooLarge, QueuePaused, QueueNotFound, UnsupportedByStore or StoreUnavailable;
        nothing is stored then. Raises OutcomeUnknown when the store did not answer, after repeating the attempt for the
        client's ``retry_seconds``. To repeat it further without storing the message twice, send
        ``error.unsent[0]``. After 14
        minutes that raises RepeatTooLate, with nothing stored.
        """
        message = OutgoingMessage(
            body=body,
            priority=priority,
            delay=delay,
            due=due,
            headers=headers,
            dedupe_key=dedupe_key,
            ttl=ttl,
            group=group,
            unique_key=unique_key,
            on_conflict=on_conflict,
        )
        if isinstance(body, OutgoingMessage):
            message = _alone(body, message)
        if self._closed or self._context.retry.closed:
            self._check_open()
        options = prepare_options(message, self._context.name)
        send = prepare(self._context, message.body, message.body, options, self._codec)
        try:
            # A message with a unique key or a large body is stored alone, so that other threads need not wait for it.
            alone = options.unique_key is not None or send.large is not None
            return self._group_commit.submit(object() if alone else None, send)
        except OutcomeUnknown as error:
            error.unsent = error.unsent or (message,)  # none: it was not begun
            raise

    def send_file(self, path: str | PathLike[str], **options: Unpack[SendArguments]) -> str:
        """Store a message whose body is the content of a file, of any size, and return its id.

        The options and errors are those of :meth:`send_stream`. Raises OSError when the file cannot be read, and
        InvalidMessage for a value that is not a path.
        """
        with _opened(path) as stream:
            return self.send_stream(stream, **options)

    def send_stream(self, stream: BinaryIO, **options: Unpack[SendArguments]) -> str:
        """Store a message whose body is all that ``stream.read`` gives, of any size, and return its id.

        The content is stored in parts of a megabyte beside the queue, then the message. Consumers read it with
        :meth:`shardq.Message.open`. The queue's ``max_message_bytes`` does not hold for it. The codec is not used. The
        options are those of :meth:`send`.

        Raises what :meth:`send` and the stream raise; InvalidMessage when the stream gives no bytes; BodyNotFound when
        it stood still for more than an hour. No message is stored then, and the parts are removed: at once, or by a
        sweep when they are two hours old. OutcomeUnknown is as in :meth:`send`: ``error.unsent[0]`` has the stored
        content.
        """
        if not callable(getattr(stream, "read", None)):
            raise InvalidMessage(
                f"stream={shown(stream)} is {kind_of(stream)}: give a file of bytes, such as open(path, 'rb')"
            )
        self._check_open()
        prepare_options(OutgoingMessage(body=None, **options), self._context.name)
        admit(self._context, SEND)
        parts = StoredBody(self._context)
        try:
            sent = self.send(store_body(parts, stream), **options)
        except OutcomeUnknown:  # the message may be stored
            raise
        except BaseException:
            remove_body(self._context, parts.so_far, None)
            raise
        if options.get("dedupe_key") is not None or options.get("unique_key") is not None:
            remove_body(self._context, parts.so_far, None)  # if another message has the key
        return sent

    def send_many(
        self,
        bodies: Iterable[Any],
        *,
        priority: int = DEFAULT_PRIORITY,
        delay: float = 0.0,
        due: datetime | None = None,
        headers: Mapping[str, HeaderValue] | None = None,
        ttl: float | None = None,
        group: str | None = None,
    ) -> Sequence[str]:
        """Store many messages, and return their ids in order.

        ``bodies`` is any iterable. It is read one bundle at a time, so a generator of any length will do. The options
        hold for every body; an :class:`~shardq.OutgoingMessage` among the bodies has its own. Several bundles are
        in flight at a time where the store takes them, each to another shard.

        When a bundle cannot be stored, or a message is refused, it stops and waits for the bundles in flight. Then it
        raises PartialSend, which names the messages that are stored and those that are not. If ``bodies`` is a
        sequence and nothing is stored for certain, it raises the error itself, as :meth:`send` does.
        """
        self._check_open()
        shared = OutgoingMessage(
            body=None, priority=priority, delay=delay, due=due, headers=headers, ttl=ttl, group=group
        )
        check_bodies(bodies)
        return BulkSend(self._context, bodies, shared, codec=self._codec, limits=self._limits).run()

    def close(self) -> None:
        """Refuse further sends. All messages that were sent are stored already."""
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"this producer of queue {self._context.name!r} is closed: make another one")
        self._context.retry.check_open()


def _opened(path: str | PathLike[str]) -> BinaryIO:
    """Open the file of a path. Raises InvalidMessage for a value that is not a path."""
    try:
        return Path(path).open("rb")
    except (TypeError, ValueError) as error:
        raise InvalidMessage(
            f"path={shown(path)} is not a path ({error}): give a str or a Path, or send a file with `send_stream`"
        ) from error


def _alone(message: OutgoingMessage, options: OutgoingMessage) -> OutgoingMessage:
    if msgspec.structs.replace(options, body=None) != OutgoingMessage(body=None):
        raise InvalidMessage(
            "an OutgoingMessage and further options are both given: give the options to the OutgoingMessage"
        )
    return message
