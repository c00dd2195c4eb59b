"""Envelopes: published messages as they are in the log of a topic, many in one message of the log.

An envelope's body is laid out as the data of a bundle. So a subscription that takes all of it gets it as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeGuard

import msgspec

from shardq.base.clock import from_datetime
from shardq.base.codec import Codec
from shardq.base.log import Log
from shardq.base.outgoing_message import Headers, HeaderValue, OutgoingMessage
from shardq.base.texts import shown
from shardq.core.message import Message
from shardq.core.sending.prepared import check_bodies, check_headers, size_of
from shardq.errors import InvalidMessage, MessageTooLarge
from shardq.storage.bundles import BundleData, decode_bundle, encode_bundle
from shardq.topics.filters import SUBJECT, Filter, check_subject

__all__ = [
    "MOST_BYTES",
    "Copies",
    "Envelope",
    "Stamp",
    "TopicMessage",
    "copies_of",
    "counts_in_envelopes",
    "envelope",
    "enveloped",
    "envelopes",
    "is_envelope",
]

_log = Log(__name__)

MOST_BYTES = 983_040
"""Of a message with its subject and headers: an envelope of it goes into one write of every store."""

Stamp = Callable[[Mapping[str, HeaderValue] | None], Mapping[str, HeaderValue] | None]
"""Makes the headers with which a message is published of those that were given."""

_MESSAGES = 500
_BYTES = 262_144
_COUNT = "messages"  # the header of an envelope of several, which older relays read


class TopicMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message to be published with its own subject and headers, among others.

    >>> TopicMessage(body=b"one", subject="orders.7.created").subject
    'orders.7.created'
    """

    body: Any
    subject: str | None = None
    headers: Mapping[str, HeaderValue] | None = None


class Envelope:
    """Messages that were published together."""

    def __init__(self, identity: str, enqueued_at: int, data: bytes) -> None:
        self.id, self.enqueued_at, self.data = identity, enqueued_at, data

    @classmethod
    def received(cls, message: Message) -> Envelope:
        """Read the envelope of a message of the log. Raises InvalidMessage when it is damaged in the store."""
        return cls(message.id, from_datetime(message.enqueued_at), message.raw)

    @cached_property
    def messages(self) -> BundleData:
        """Bodies and headers."""
        return decode_bundle(self.data)

    def taken(self, by: Filter) -> Sequence[int]:
        """Return the positions of the messages that a filter takes; none of a message that is not an envelope."""
        try:
            headers = self.messages.headers or [None] * len(self.messages.bodies)
        except InvalidMessage as error:
            _log.error("message %s of a topic is not relayed: %s", self.id, error)
            return ()
        if by.takes_everything:
            return range(len(headers))
        return [position for position, found in enumerate(headers) if by.takes(found)]


class Copies(msgspec.Struct, frozen=True):
    """Messages that become a bundle of a subscription."""

    data: bytes
    count: int
    enqueued_at: int


def envelope(message: TopicMessage, codec: Codec) -> OutgoingMessage:
    """Put a message alone into an envelope; raises InvalidMessage or MessageTooLarge."""
    return _packed([_checked(codec.encode(message.body), _headers(message))])


def is_envelope(item: object) -> TypeGuard[OutgoingMessage]:
    """Return True for an envelope that failed to be sent before. Raises InvalidMessage for a message that is none."""
    if not isinstance(item, OutgoingMessage):
        return False
    try:
        if isinstance(item.body, bytes):
            decode_bundle(item.body)
            return True
    except InvalidMessage:
        pass
    raise InvalidMessage(
        f"body {shown(item.body)} is in an OutgoingMessage that no publish has made, so no subscription would get it: "
        "give the body alone, with `subject` and `headers`, or a TopicMessage to `publish_many`"
    )


def envelopes(
    bodies: Iterable[Any], shared: TopicMessage, codec: Codec, stamp: Stamp = lambda headers: headers
) -> Iterator[OutgoingMessage]:
    """Yield messages in envelopes; one that failed to be sent before is passed on as it is.

    ``stamp`` makes the headers of a message that has its own. Messages before a refused one are handed out first.
    Raises InvalidMessage at once for the options that they share.
    """
    check_bodies(bodies, "publish one body with `publish`")
    headers = _headers(shared)
    return _pack(
        bodies, lambda item: None if is_envelope(item) else _of(item, headers, codec, stamp), _packed
    )


def counts_in_envelopes(messages: Iterable[tuple[bytes, Headers | None]]) -> Iterator[int]:
    """Yield how many of these bodies and headers each envelope holds; raises MessageTooLarge."""
    return _pack(messages, lambda message: _checked(*message), len)


def _pack(
    items: Iterable[Any],
    read: Callable[[Any], tuple[bytes, Headers | None] | None],
    make: Callable[[Sequence[tuple[bytes, Headers | None]]], Any],
) -> Iterator[Any]:
    """Make something of the items of each envelope, and pass on those that are one: nothing is read of them."""
    waiting: list[tuple[bytes, Headers | None]] = []
    size = 0
    for position, item in enumerate(items):
        try:
            message = read(item)
        except InvalidMessage as error:
            if waiting:
                yield make(waiting)
            error.position = position
            raise
        added = 0 if message is None else len(message[0]) + size_of(message[1])
        full = len(waiting) == _MESSAGES or size >= _BYTES or size + added > MOST_BYTES
        if waiting and (message is None or full):
            yield make(waiting)
            waiting, size = [], 0
        if message is None:
            yield item
        else:
            waiting.append(message)
            size += added
    if waiting:
        yield make(waiting)


def copies_of(found: Sequence[Envelope], by: Filter) -> Iterator[Copies]:
    """Yield the copies of envelopes for a subscription: small ones together, one that it takes whole as it is."""
    waiting: list[tuple[BundleData, int]] = []
    messages = size = 0
    for each in found:
        taken = each.taken(by)
        if not taken:
            continue
        alone = len(taken) == len(each.messages.bodies) and len(taken) >= _MESSAGES // 2
        if waiting and (alone or messages + len(taken) > _MESSAGES or size + len(each.data) > _BYTES):
            yield _joined(waiting)
            waiting, messages, size = [], 0, 0
        if alone:
            yield Copies(each.data, len(taken), each.enqueued_at)
            continue
        waiting.append((_chosen(each.messages, taken), each.enqueued_at))
        messages, size = messages + len(taken), size + len(each.data)
    if waiting:
        yield _joined(waiting)


def _of(item: Any, headers: Headers | None, codec: Codec, stamp: Stamp) -> tuple[bytes, Headers | None]:
    if isinstance(item, TopicMessage):
        item = msgspec.structs.replace(item, headers=stamp(item.headers))
        return _checked(codec.encode(item.body), _headers(item))
    return _checked(codec.encode(item), headers)


def _headers(message: TopicMessage) -> Headers | None:
    headers, subject = check_headers(message.headers), check_subject(message.subject)
    return headers if subject is None else {**(headers or {}), SUBJECT: subject}


def _checked(body: bytes, headers: Headers | None) -> tuple[bytes, Headers | None]:
    size = len(body) + size_of(headers)
    if size > MOST_BYTES:
        raise MessageTooLarge(
            f"message of {size:,} bytes: a topic takes at most {MOST_BYTES:,}, with subject and headers; "
            "store the content elsewhere and publish a reference"
        )
    return body, headers


def enveloped(data: bytes, count: int) -> OutgoingMessage:
    """Return the envelope of this number of messages, which are laid out as the data of a bundle."""
    return OutgoingMessage(body=data, headers={_COUNT: count} if count > 1 else None)


def _packed(messages: Sequence[tuple[bytes, Headers | None]]) -> OutgoingMessage:
    headers = [each for _, each in messages]
    data = BundleData([body for body, _ in messages], headers if any(headers) else None)
    return enveloped(encode_bundle(data), len(messages))


def _chosen(messages: BundleData, positions: Sequence[int]) -> BundleData:
    if len(positions) == len(messages.bodies):
        return messages
    headers = messages.headers and [messages.headers[position] for position in positions]
    return BundleData([messages.bodies[position] for position in positions], headers)


def _joined(parts: Sequence[tuple[BundleData, int]]) -> Copies:
    bodies = [body for part, _ in parts for body in part.bodies]
    headers = [each for part, _ in parts for each in part.headers or [None] * len(part.bodies)]
    data = BundleData(bodies, headers if any(headers) else None)
    return Copies(encode_bundle(data), len(bodies), min(moment for _, moment in parts))
