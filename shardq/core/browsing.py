"""Looking at stored messages, and removing one, without receiving them."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice

import msgspec

from shardq.base.clock import from_datetime, is_aware, microseconds, to_datetime
from shardq.base.codec import Codec
from shardq.base.outgoing_message import group_of
from shardq.base.receipt import MessageId
from shardq.base.shard import Shard
from shardq.base.texts import shown
from shardq.core.context.decision_log import why_blocked
from shardq.core.context.event_writer import Entry
from shardq.core.context.identity import ConsumerIdentity, holder_id
from shardq.core.context.queue_context import QueueContext
from shardq.core.held import HeldSlice
from shardq.core.message import StoredMessage
from shardq.errors import InvalidSetting
from shardq.storage.bundles import BundleData, decode_bundle
from shardq.storage.requests import ClaimedSlice, Peek, Span, StoredSlice

__all__ = [
    "READ_AHEAD_BYTES",
    "Holders",
    "blocked_slices",
    "browse",
    "browse_blocked",
    "browse_history",
    "find",
    "find_many",
    "find_parts",
    "find_slice",
    "held_stored",
    "history_slices",
    "messages_in",
    "period_of",
    "read_properties",
    "remove",
    "slices",
]

PAGE_MESSAGES = 1_000
READ_AHEAD_BYTES = 64 << 20  # bytes of bodies that are read ahead

FOUND_AT_ONCE = 100
"""Messages that are looked for with one request, which reads their bundles."""


def browse(
    context: QueueContext, codec: Codec, limit: int, page: int = PAGE_MESSAGES
) -> Iterator[StoredMessage]:
    """Yield pending messages and messages in flight: shard by shard, each in delivery order."""
    holders = Holders(context)
    for shard in context.retry(context.store.shards, context.name):
        for piece in slices(context, Peek(shard, min(limit, page))):
            for message in messages_in(shard, piece, codec):
                yield holders.shown(message, piece)
                limit -= 1
                if limit <= 0:
                    return


def browse_blocked(context: QueueContext, codec: Codec, limit: int) -> Iterator[StoredMessage]:
    """Yield messages that hold up their groups until they are redriven or removed."""
    holders = Holders(context)
    found = (
        holders.shown(message, piece)
        for shard, piece in blocked_slices(context)
        for message in messages_in(shard, piece, codec)
    )
    return islice(found, limit)


def blocked_slices(context: QueueContext) -> Iterator[tuple[Shard, StoredSlice]]:
    """Yield the slices of messages that hold up their groups."""
    for shard in context.retry(context.store.shards, context.name):
        if shard.is_grouped:
            held = slices(context, Peek(shard, PAGE_MESSAGES, held=True))
            yield from ((shard, piece) for piece in held if piece.blocks)


def browse_history(context: QueueContext, codec: Codec, since: int, until: int) -> Iterator[StoredMessage]:
    """Yield processed messages, in the order in which they were acked."""
    for shard, piece in history_slices(context, since, until):
        yield from messages_in(shard, piece, codec)


def history_slices(context: QueueContext, since: int, until: int) -> Iterator[tuple[Shard, StoredSlice]]:
    """Yield processed slices of all shards, in the order in which they were acked."""
    shards = context.retry(context.store.shards, context.name)
    page_bytes = READ_AHEAD_BYTES // max(1, len(shards))  # there is a page of each at a time

    def of(shard: Shard) -> Iterator[tuple[Shard, StoredSlice]]:
        request = Peek(shard, max(1, page_bytes >> 20), processed=True, since=since, until=until)
        return ((shard, piece) for piece in slices(context, request, page_bytes))

    return heapq.merge(*map(of, shards), key=lambda found: found[1].due)


def find(context: QueueContext, codec: Codec, identity: MessageId) -> StoredMessage | None:
    """Find one message by its id."""
    piece = find_slice(context, identity)
    if piece is None:
        return None
    data = decode_bundle(piece.bundle.data, identity)
    return Holders(context).shown(_message(identity, piece, data, codec), piece)


def find_many(context: QueueContext, codec: Codec, ids: Sequence[str]) -> dict[str, StoredMessage]:
    """Find the stored ones of these messages, by their ids."""
    by_shard: dict[Shard, list[MessageId]] = {}
    for identity in map(MessageId.parse, dict.fromkeys(ids)):
        by_shard.setdefault(identity.shard, []).append(identity)
    holders, found = Holders(context), dict[str, StoredMessage]()
    for shard, some in by_shard.items():
        pieces = find_slices(context, shard, [(each.bundle_id, each.position) for each in some])
        for identity, piece in zip(some, pieces, strict=True):
            if piece is not None:
                shown = _message(identity, piece, decode_bundle(piece.bundle.data, identity), codec)
                found[str(identity)] = holders.shown(shown, piece)
    return found


def find_slice(context: QueueContext, identity: MessageId) -> StoredSlice | None:
    """Find the slice that holds a message."""
    return context.retry(context.store.find, identity.shard, identity.bundle_id, identity.position)


def find_slices(
    context: QueueContext, shard: Shard, places: Sequence[tuple[bytes, int]]
) -> Iterator[StoredSlice | None]:
    """Yield the slice of each of these messages of a shard, by bundle id and position; None for a missing one."""
    for start in range(0, len(places), FOUND_AT_ONCE):
        yield from context.retry(context.store.find_many, shard, places[start : start + FOUND_AT_ONCE])


def find_parts(
    context: QueueContext, shard: Shard, spans: Iterable[Span]
) -> Iterator[tuple[Span, StoredSlice]]:
    """Find the stored parts of spans: parts of the spans, each with the slice that holds it.

    Each slice is read once; behind a message that is not stored, each message is read alone.
    """
    asked = list(spans)
    while asked:
        rests = list[Span]()
        places = [(span.bundle_id, span.first) for span in asked]
        for span, piece in zip(asked, find_slices(context, shard, places), strict=True):
            if piece is None:
                rests += (_cut(span, first, 1) for first in range(span.first + 1, span.first + span.count))
                continue
            count = min(piece.first + piece.count - span.first, span.count)
            yield _cut(span, span.first, count), piece
            if count < span.count:
                rests.append(_cut(span, span.first + count, span.count - count))
        asked = rests


def _cut(span: Span, first: int, count: int) -> Span:
    return msgspec.structs.replace(span, first=first, count=count)


def remove(context: QueueContext, identity: MessageId, *, event: str = "removed") -> bool:
    """Remove one message by its id; False when it was not stored. The event is recorded for it."""
    answer = context.retry.ask(context.store.remove, identity.shard, identity.bundle_id, identity.position)
    removed = answer.value or answer.after_unknown
    if removed and context.keeps_events:
        context.events.record(context, [Entry(event, str(identity))])
    return removed


def slices(context: QueueContext, request: Peek, page_bytes: int | None = None) -> Iterator[StoredSlice]:
    """Read the slices of a shard, from the requested page to the last one.

    With ``page_bytes`` the pages grow while they take up to half of that number of bytes, or shrink.
    """
    while True:
        page = context.retry(context.store.peek, request)
        yield from page.slices
        if not page.after:
            return
        limit = request.limit
        if page_bytes is not None:
            size = sum(len(piece.bundle.data) for piece in page.slices)
            fitting = 2 * limit if 2 * size <= page_bytes else max(1, limit * page_bytes // size)
            limit = min(fitting, 2 * limit, PAGE_MESSAGES)
        request = msgspec.structs.replace(request, after=page.after, limit=limit)


def held_stored(shard: Shard, piece: StoredSlice, token: bytes | None = None) -> HeldSlice:
    """Return a stored slice as its holder has it, under ``token`` or its own. Without either it has no holder."""
    holder = piece.token if token is None else token
    assert holder is not None
    claimed = ClaimedSlice(piece.bundle, piece.first, piece.count, piece.deliveries)
    return HeldSlice(shard, claimed, holder, piece.due, started=piece.started)


def read_properties(held: HeldSlice) -> HeldSlice:
    """Take over the unique key and the large body of a slice's only message; returns it. Raises InvalidMessage."""
    held.unique_key, held.large = held.messages.unique_key, held.messages.large
    return held


class Holders:
    """The holders of messages: consumers by their names, which are read once, or the reason of a block."""

    def __init__(self, context: QueueContext) -> None:
        self._context = context
        self._names: dict[str, str] | None = None  # by the ids of consumers

    def shown(self, message: StoredMessage, piece: StoredSlice) -> StoredMessage:
        """Add the consumer that holds the message, or the reason why it blocks its group."""
        if piece.token is None:
            return message
        if piece.blocks:
            return msgspec.structs.replace(message, blocked=why_blocked(self._context, message.id))
        return msgspec.structs.replace(message, owner=self._name_of(piece.token))

    def _name_of(self, token: bytes) -> str:
        """Return the name of a consumer, or its id where no more is known."""
        if self._names is None:
            seen = self._context.retry(self._context.store.seen_consumers, self._context.name)
            known = filter(None, (ConsumerIdentity.read(each.consumer) for each in seen))
            self._names = {identity.id: identity.name for identity in known}
        identity = holder_id(token)
        return self._names.get(identity, identity)


def messages_in(shard: Shard, piece: StoredSlice, codec: Codec) -> Iterator[StoredMessage]:
    """Yield the messages of a slice."""
    data = decode_bundle(piece.bundle.data, MessageId(shard, piece.bundle.id, piece.first))
    for position in range(piece.first, piece.first + piece.count):
        yield _message(MessageId(shard, piece.bundle.id, position), piece, data, codec)


def _message(identity: MessageId, piece: StoredSlice, data: BundleData, codec: Codec) -> StoredMessage:
    position = identity.position
    return StoredMessage(
        id=str(identity),
        body=codec.decode(data.bodies[position]) if data.large is None else None,
        large=data.large,
        headers=(data.headers[position] if data.headers else None) or {},
        priority=piece.bundle.priority,
        state=piece.state,
        due=to_datetime(piece.due),
        enqueued_at=to_datetime(piece.bundle.enqueued_at),
        deliveries=piece.deliveries,
        dedupe_key=data.dedupe_keys[position] if data.dedupe_keys else None,
        expires_at=None if piece.bundle.expires_at is None else to_datetime(piece.bundle.expires_at),
        group=group_of(piece.bundle.group),
        unique_key=data.unique_key,
    )


def period_of(context: QueueContext, since: datetime | None, until: datetime | None) -> tuple[int, int]:
    """Return a period of the history in microseconds, as far as it is kept. Raises InvalidSetting."""
    for name, moment in (("since", since), ("until", until)):
        if moment is not None and not is_aware(moment):
            raise InvalidSetting(
                f"{name}={shown(moment)}: give an aware datetime, such as datetime.now(UTC) - timedelta(minutes=10)"
            )
    now = context.retry(context.store.now)
    retention = microseconds(context.settings.history_retention)
    start = max(from_datetime(since) if since else 0, now - retention)
    return start, from_datetime(until) if until else now + 1
