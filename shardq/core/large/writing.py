"""Storing a large body: its parts one after the other, then the message that has it.

A body without an owner's entry is left alone for `GRACE` after its last part, so whoever stores it has to go on within
that time. Nothing else is asked of it: if it dies, a sweep removes what it has stored.
"""

from __future__ import annotations

import secrets
from hashlib import sha256
from typing import BinaryIO

from shardq.base.large_body import LargeBody
from shardq.base.wording import shown
from shardq.core.context.queue_context import QueueContext
from shardq.core.large.layout import GRACE, PART_BYTES, new_body_id, owner_entry, part, part_id, shard_of
from shardq.core.large.queue import bodies_queue, existing_bodies_queue
from shardq.core.large.reading import load_part
from shardq.core.sending.doors import BODY, append
from shardq.core.sending.planned_bundles import PlannedBundle
from shardq.errors import BodyNotFound, InvalidMessage, OutcomeUnknown, StoreUnavailable

__all__ = ["StoredBody", "carry_body", "keep_body", "store_body"]

_KEPT = ""  # names no message


class StoredBody:
    """A body that is being stored, part by part."""

    def __init__(self, context: QueueContext) -> None:
        self._bodies = bodies_queue(context)
        self._changed_at = self._bodies.store.now()
        self._id = new_body_id(self._bodies.ids.new(self._changed_at))
        self._parts = self._size = 0
        self._sum = sha256()

    def add(self, content: bytes) -> None:
        """Store the next part; all but the last have `PART_BYTES`."""
        self._check_time()
        now = self._bodies.store.now()
        bundle = part(self._id, self._parts, content, now)
        try:
            append(self._bodies, BODY, [PlannedBundle.of(shard_of(self._id), bundle)])
        except OutcomeUnknown as error:  # of a part; no message is stored
            raise StoreUnavailable(f"the large body was not stored: {error}") from error
        self._sum.update(content)
        self._parts, self._size, self._changed_at = self._parts + 1, self._size + len(content), now

    @property
    def body(self) -> LargeBody:
        """What is stored so far. Raises BodyNotFound when that may be removed before a message has it."""
        self._check_time()
        return self.so_far

    @property
    def so_far(self) -> LargeBody:
        """What is stored so far, be it removed or not."""
        return LargeBody(self._id, self._size, self._sum.digest(), PART_BYTES)

    def _check_time(self) -> None:
        """Half of the time is for what comes after this look at the clock."""
        if self._bodies.store.now() - self._changed_at > GRACE // 2:
            raise BodyNotFound(
                f"the stream of a large body stood still for more than {GRACE // 120_000_000} minutes, so that what is "
                "stored of it may be removed: send it again"
            )


def store_body(body: StoredBody, stream: BinaryIO) -> LargeBody:
    """Store all that a stream gives. Raises InvalidMessage when that is not bytes, and what the stream raises."""
    while content := _read(stream):
        body.add(content)
    return body.body


def _read(stream: BinaryIO) -> bytes:
    """The next part; shorter than `PART_BYTES` only at the end, whatever the stream gives at a time."""
    pieces: list[bytes] = []
    missing = PART_BYTES
    while missing:
        piece = stream.read(missing)
        # None says that the stream does not wait, not that it is at its end.
        if not isinstance(piece, bytes | bytearray | memoryview):
            raise InvalidMessage(
                f"stream {shown(stream)} gives {type(piece).__name__}: give one of bytes that waits for them, such as "
                "open(path, 'rb')"
            )
        if not piece:
            break
        if len(piece) > missing:
            raise InvalidMessage(
                f"stream {shown(stream)} gives {len(piece):,} bytes when asked for {missing:,}"
            )
        pieces.append(bytes(piece))
        missing -= len(piece)
    return b"".join(pieces)


def keep_body(context: QueueContext, body: LargeBody) -> None:
    """Keep a body for `GRACE` from now on, whatever becomes of its message."""
    bodies = bodies_queue(context)
    entry = owner_entry(body, f"{_KEPT}{secrets.token_hex(8)}", bodies.store.now())
    append(bodies, BODY, [PlannedBundle.of(shard_of(body.id), entry)])


def carry_body(source: QueueContext, target: QueueContext, body: LargeBody, message_id: str) -> LargeBody:
    """The body for a copy of a message: the same one in the same store, else a copy of it. Raises BodyNotFound."""
    if _is_stored(target, body):
        keep_body(target, body)
        if _is_stored(target, body):  # nobody removes it now
            return body
    copy, bodies = StoredBody(target), existing_bodies_queue(source)
    for number in range(body.parts):
        copy.add(load_part(bodies, body, number, message_id))
    return copy.body


def _is_stored(target: QueueContext, body: LargeBody) -> bool:
    """True when a body is there: it is stored from its first part on, and removed from its last."""
    bodies, shard = bodies_queue(target), shard_of(body.id)
    ends = (part_id(body.id, number) for number in {0, body.parts - 1} if body.parts)
    return all(bodies.retry(bodies.store.find, shard, each, 0) is not None for each in ends)
