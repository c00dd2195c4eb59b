"""Entries about what became of messages, in the logs of queues that keep events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from shardq.base.receipt import MessageId
from shardq.base.shard import Shard
from shardq.core.context.events import Entry
from shardq.core.context.queue_context import QueueContext
from shardq.core.logs.log_queues import EVENTS, Line, logs_of, read, write
from shardq.storage.bundle_id import BUNDLE_ID_BYTES

__all__ = ["read_entries", "read_purges", "tell_purged", "write_entries"]

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Entry).decode


def write_entries(context: QueueContext, entries: Sequence[Entry]) -> None:
    """Store entries in the present log of a queue. Those of a queue that is gone, or keeps none by now, are not."""
    write(EVENTS, context, [Line(_ids(entry), _encode(entry)) for entry in entries])


def read_entries(context: QueueContext, queue: str, identity: MessageId) -> Iterator[Entry]:
    """The entries about the messages of a bundle in the logs of a queue."""
    for _, log in logs_of(context.store, context.retry, EVENTS, queue):
        yield from map(_decode, read(context, log, identity))


def tell_purged(context: QueueContext) -> None:
    """Tell that all messages of a queue were removed, as one event of the queue."""
    if context.keeps_events:
        context.events.tell(context, [Entry("purged", str(_place_of(context.name)))])


def read_purges(context: QueueContext, queue: str) -> Iterator[Entry]:
    """The entries that tell of purges of a queue."""
    return read_entries(context, queue, _place_of(queue))


def _place_of(queue: str) -> MessageId:
    """The place of what is about no message, but about the queue."""
    return MessageId(Shard(queue, 0, 0), bytes(BUNDLE_ID_BYTES), 0)


def _ids(entry: Entry) -> list[MessageId]:
    return [MessageId.parse(text) for text in (entry.first, entry.to) if text]
