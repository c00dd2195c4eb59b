"""The log of a topic: messages that a relay has claimed, and relayed ones."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import groupby, islice

import msgspec

from shardq.base.clock import from_datetime, microseconds
from shardq.base.log import Log
from shardq.base.receipt import MessageId
from shardq.base.shard import Shard
from shardq.core.browsing import slices
from shardq.core.context.queue_context import QueueContext
from shardq.core.message import Message
from shardq.errors import InvalidMessage, LeaseLost, ShardqError
from shardq.storage.bundles import decode_bundle
from shardq.storage.requests import EntryState, Peek, StoredSlice
from shardq.topics.envelopes import MOST_BYTES, Envelope
from shardq.topics.state import Round

__all__ = [
    "LEASE_SECONDS",
    "Chunk",
    "ClaimedEnvelopes",
    "Cursor",
    "envelope_of",
    "horizon",
    "is_waiting",
    "next_chunk",
]

_log = Log(__name__)

LEASE_SECONDS = 30.0
_SETTLED = 60_000_000  # microseconds
_ALWAYS = 2**62
_PAGE_MESSAGES = 20
_CHUNK_ENVELOPES = 90


class ClaimedEnvelopes:
    """Messages that were claimed just now."""

    def __init__(self, messages: Iterable[Message]) -> None:
        self._messages = {message.id: message for message in messages}

    def __len__(self) -> int:
        return len(self._messages)

    def add(self, messages: Iterable[Message]) -> None:
        """Take messages that were claimed just now beside those that are here."""
        self._messages.update((message.id, message) for message in messages)

    def next(self, now: int) -> list[Message]:
        """Return the messages of one round. They are held now: older claims are extended, or left out if lost.

        A while by the store's clock: while the machine is suspended, that of the process may stand still.
        """
        soon = now + microseconds(LEASE_SECONDS * 2 / 3)
        if any(from_datetime(message.lease_until) < soon for message in self._messages.values()):
            self._hold_on()
        chosen: list[Message] = []
        size = 0
        for message in self._messages.values():
            size += len(message.raw)
            if chosen and size > MOST_BYTES:
                break
            chosen.append(message)
        return chosen

    def entered(self, round_: Round | None) -> None:
        """Leave out messages of a round that was entered into the state."""
        receipts = set(round_.messages) if round_ is not None else ()
        self._messages = {
            each: message for each, message in self._messages.items() if message.receipt not in receipts
        }

    def ack(self, identity: str) -> bool:
        """Ack a message of another relay's round; False when it is not here."""
        message = self._messages.pop(identity, None)
        if message is None:
            return False
        try:
            message.ack()
        except LeaseLost:
            return False
        return True

    def release(self) -> None:
        """Release the rest."""
        for message in self._messages.values():
            with suppress(ShardqError):  # it comes back when its lease expires
                message.release(count=False)

    def _hold_on(self) -> None:
        for message in list(self._messages.values()):
            try:
                message.extend(LEASE_SECONDS)
            except LeaseLost:
                del self._messages[message.id]


Cursor = tuple[int, str, bytes, int]
"""A place in the history: when a message was acked, its shard, its bundle and its position."""


class Chunk(msgspec.Struct, frozen=True):
    """The next messages of the history, and the place where it continues after them."""

    envelopes: tuple[Envelope, ...]
    cursor: Cursor
    last: bool  # nothing else may come into the history before it is copied


def next_chunk(log: QueueContext, cursor: Cursor) -> Chunk | None:
    """Read the envelopes that were acked after a place, as much as a round may have; None when there is nothing.

    First come those that were acked more than a minute ago, which are in their places, however much clocks differ.
    """
    settled = log.store.now() - _SETTLED
    return _chunk(log, cursor, settled, last=False) or _chunk(log, cursor, _ALWAYS, last=True)


def _chunk(log: QueueContext, cursor: Cursor, until: int, *, last: bool) -> Chunk | None:
    found: list[Envelope] = []
    size = 0
    for place, envelope in islice(_history(log, cursor, until), _CHUNK_ENVELOPES):
        size += len(envelope.data)
        if found and size > MOST_BYTES:
            break
        found.append(envelope)
        cursor = place
    return Chunk(tuple(found), cursor, last) if found else None


def horizon(log: QueueContext) -> int:
    """Return the moment before which the history has expired, in microseconds."""
    return log.store.now() - microseconds(log.settings.history_retention)


def envelope_of(log: QueueContext, identity: str) -> Envelope | None:
    """Find a message of the log by its id, waiting or relayed; None when it is no longer stored."""
    place = MessageId.parse(identity)
    piece = log.retry(log.store.find, place.shard, place.bundle_id, place.position)
    return None if piece is None else _envelope(place.shard, piece, place.position)


def is_waiting(log: QueueContext, identity: str) -> bool:
    """Return whether a message of the log is not acked."""
    place = MessageId.parse(identity)
    piece = log.retry(log.store.find, place.shard, place.bundle_id, place.position)
    return piece is not None and piece.state is not EntryState.PROCESSED


def _history(log: QueueContext, cursor: Cursor, until: int) -> Iterator[tuple[Cursor, Envelope]]:
    since = max(cursor[0], horizon(log))

    def of(shard: Shard) -> Iterator[tuple[Cursor, Envelope]]:
        stored = slices(log, Peek(shard, _PAGE_MESSAGES, processed=True, since=since, until=until))
        for piece in _by_place(stored):
            for position in range(piece.first, piece.first + piece.count):
                place = (piece.due, str(shard), piece.bundle.id, position)
                if place > cursor and (found := _envelope(shard, piece, position)) is not None:
                    yield place, found

    shards = log.retry(log.store.shards, log.name)
    return heapq.merge(*map(of, shards), key=lambda found: found[0])


def _by_place(found: Iterable[StoredSlice]) -> Iterator[StoredSlice]:
    """Yield slices in the order of a cursor: stores have other orders for slices that were acked at the same moment."""
    for _, together in groupby(found, key=lambda piece: piece.due):
        yield from sorted(together, key=lambda piece: (piece.bundle.id, piece.first))


def _envelope(shard: Shard, piece: StoredSlice, position: int) -> Envelope | None:
    """Read a stored message of the log; None when it is damaged."""
    identity = str(MessageId(shard, piece.bundle.id, position))
    try:
        messages = decode_bundle(piece.bundle.data, identity)
    except InvalidMessage as error:
        _log.error("a message of a topic is not relayed: %s", error)
        return None
    return Envelope(identity, piece.bundle.enqueued_at, messages.bodies[position])
