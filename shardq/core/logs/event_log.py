"""Events in the logs of queues that keep them, and the trace of a message that they make."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Literal, TypeAlias, cast

import msgspec

from shardq.base.clock import seconds, to_datetime
from shardq.base.receipt import MessageId
from shardq.base.shard import Shard
from shardq.core.browsing import find_slice
from shardq.core.context.event_writer import Entry
from shardq.core.context.queue_context import QueueContext
from shardq.core.logs.log_queues import EVENTS, Line, logs_of, read, write
from shardq.core.settling.dead_letters import origin
from shardq.errors import InvalidReceipt, QueueNotFound
from shardq.storage.bundles import BUNDLE_ID_BYTES, decode_bundle

__all__ = ["SETTLES", "Event", "EventKind", "record_purged", "trace", "write_entries"]

_encode = msgspec.msgpack.Encoder().encode
_decoded = msgspec.msgpack.Decoder(Entry).decode
EventKind: TypeAlias = Literal[
    "sent", "claimed", "released", "returned", "snoozed", "failed", "noted", "acked", "forwarded", "dead_lettered",
    "blocked", "redriven", "replaced", "expired", "dropped", "removed", "extended", "lease_expired", "purged",
]  # fmt: skip
"""The kind of an event. Later versions may have more kinds."""
_ENDS = frozenset({"acked", "expired", "dropped", "removed"})  # the message is gone
_MOVES = frozenset({"forwarded", "dead_lettered", "redriven", "replaced"})
SETTLES = _ENDS | _MOVES | {"released", "returned", "snoozed", "blocked"}
"""The events that end a delivery: a claim after one of these does not mean that a lease has expired."""
_RENAMED = {"given_back": "returned"}  # kinds in logs that older versions have written
_FLUSH = 5.0  # seconds for which what this client has recorded and not written is waited for


def write_entries(context: QueueContext, entries: Sequence[Entry]) -> None:
    """Store entries in the present log of a queue. Those of a queue that is gone, or keeps none by now, are not."""
    write(EVENTS, context, [Line(_ids(entry), _encode(entry)) for entry in entries])


def read_entries(context: QueueContext, queue: str, identity: MessageId) -> Iterator[Entry]:
    """Read the entries about the messages of a bundle in the logs of a queue."""
    for _, log in logs_of(context.store, context.retry, EVENTS, queue):
        yield from map(_decode, read(context, log, identity))


def _decode(line: bytes) -> Entry:
    entry = _decoded(line)
    kind = _RENAMED.get(entry.kind)
    return entry if kind is None else msgspec.structs.replace(entry, kind=kind)


def record_purged(context: QueueContext) -> None:
    """Record that all messages of a queue were removed, as one event of the queue."""
    if context.keeps_events:
        context.events.record(context, [Entry("purged", str(_place_of(context.name)))])


def read_purges(context: QueueContext, queue: str) -> Iterator[Entry]:
    """Read the entries about purges of a queue."""
    return read_entries(context, queue, _place_of(queue))


def _place_of(queue: str) -> MessageId:
    """Return the place of entries that are about the queue and not about a message."""
    return MessageId(Shard(queue, 0, 0), bytes(BUNDLE_ID_BYTES), 0)


def _ids(entry: Entry) -> list[MessageId]:
    return [MessageId.parse(text) for text in (entry.first, entry.to) if text]


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that became of a message, by the store's clock.

    ``returned`` and ``snoozed`` are releases whose delivery did not count. ``to`` is the id that a message has
    since: it was moved to another queue, or got another body. ``lease_expired`` is recorded when the message is
    claimed again; ``purged`` of one that was in its queue when that was purged.
    """

    at: datetime
    kind: EventKind
    message_id: str
    delivery: int | None = None  # its number; None: it is not known, or was before the first
    owner: str | None = None  # the name of the consumer that held the message, or its id if no more is known
    delay: float | None = None  # seconds
    text: str | None = None  # the reason, or the error
    to: str | None = None


def trace(context: QueueContext, identity: MessageId) -> list[Event]:
    """Return the events of a message in order, as far as they are kept."""
    context.events.flush(_FLUSH)
    trace = _Trace(context)
    trace.follow(identity)
    if not trace.entries and (before := _came_from(context, identity)) is not None:
        trace.follow(before)
        if identity not in trace.ids:
            return []
    events = trace.events()
    return [*events, *_purged(context, events)]


class _Trace:
    """The entries about a message, under all the ids that it has had."""

    def __init__(self, context: QueueContext) -> None:
        self._context = context
        self.ids: dict[MessageId, None] = {}
        self._queues: dict[str, None] = {}
        self._read: set[tuple[str, MessageId]] = set()
        self.entries: dict[Entry, tuple[MessageId, MessageId | None]] = {}

    def follow(self, identity: MessageId) -> None:
        """Read the events of an id, and of those that it leads to. Each log may know more of each of them."""
        self._add(identity)
        while missing := self._missing():
            self._read.update(missing)
            for queue, each in missing:
                for entry in read_entries(self._context, queue, each):
                    self._take(entry, each)

    def events(self) -> list[Event]:
        """Return all events, in order."""
        found = self._in_order()
        names = {entry.holder: entry.owner for entry in found if entry.owner}
        return [_event(entry, *self.entries[of], names) for entry, of in _with_lease_ends(found)]

    def _in_order(self) -> list[Entry]:
        return sorted(self.entries, key=lambda entry: (entry.at, entry.order))

    def _missing(self) -> list[tuple[str, MessageId]]:
        return [
            (queue, each) for queue in self._queues for each in self.ids if (queue, each) not in self._read
        ]

    def _add(self, identity: MessageId) -> None:
        self.ids[identity] = None
        self._queues[identity.shard.queue] = None

    def _take(self, entry: Entry, identity: MessageId) -> None:
        """Take an entry over if it is about this message."""
        first, to = MessageId.parse(entry.first), MessageId.parse(entry.to) if entry.to else None
        for start in (first, to):
            number = -1 if start is None else _distance(start, identity)
            if 0 <= number < entry.count:
                places = first.after(number), None if to is None else to.after(number)
                self.entries[entry] = places
                for each in places:
                    if each is not None:
                        self._add(each)


def _with_lease_ends(entries: Sequence[Entry]) -> Iterator[tuple[Entry, Entry]]:
    """Yield the entries, and before each claim that shows it the end of the previous holder's lease.

    Each comes with the entry that names its message.
    """
    held: Entry | None = None
    for number, entry in enumerate(entries):
        if entry.kind == "claimed":
            if held is not None and not any(_settles(late, held) for late in entries[number:]):
                yield msgspec.structs.replace(held, kind="lease_expired", at=entry.at), held
            held = entry
        elif held is not None and _settles(entry, held):
            held = None
        yield entry, entry


def _settles(entry: Entry, claim: Entry) -> bool:
    """Return whether an entry ends the delivery of a claim; by receipt the delivery is not known."""
    return entry.kind in SETTLES and entry.holder == claim.holder and entry.delivery in (0, claim.delivery)


def _purged(context: QueueContext, events: Sequence[Event]) -> Iterator[Event]:
    """Find the purge that removed the message, if it is gone and no other event explains that."""
    if not events or events[-1].kind in _ENDS or (events[-1].kind in _MOVES and events[-1].to is None):
        return
    identity = MessageId.parse(events[-1].to or events[-1].message_id)
    with suppress(QueueNotFound):
        if find_slice(context, identity) is None:
            purges = (
                _event(entry, identity, None, {}) for entry in read_purges(context, identity.shard.queue)
            )
            yield from sorted(
                (each for each in purges if each.at >= events[-1].at), key=lambda each: each.at
            )[:1]


def _came_from(context: QueueContext, identity: MessageId) -> MessageId | None:
    """Return the id that a dead letter had before, out of its headers: its own queue may keep no events."""
    piece = find_slice(context, identity)
    headers = None if piece is None else decode_bundle(piece.bundle.data).headers
    before = None if headers is None else origin(headers[identity.position])
    try:
        return None if before is None else MessageId.parse(before)
    except InvalidReceipt:  # an application's own header
        return None


def _distance(first: MessageId, identity: MessageId) -> int:
    same = (first.shard, first.bundle_id) == (identity.shard, identity.bundle_id)
    return identity.position - first.position if same else -1


def _event(entry: Entry, first: MessageId, to: MessageId | None, names: dict[str, str]) -> Event:
    return Event(
        at=to_datetime(entry.at),
        kind=cast("EventKind", entry.kind),
        message_id=str(first),
        delivery=entry.delivery or None,
        owner=_owner(entry, names),
        delay=None if entry.delay is None else seconds(entry.delay),
        text=entry.text or None,
        to=None if to is None else str(to),
    )


def _owner(entry: Entry, names: dict[str, str]) -> str | None:
    """Return the holder of the message; None for a redrive, as the last holder did not send it back."""
    if entry.kind == "redriven":
        return None
    return entry.owner or names.get(entry.holder) or entry.holder or None
