"""Reading a large body as a file, and storing one: its parts first, then the message that has it.

A body without an owner's entry is left alone for `GRACE` after its last part, so its sender has to continue within
that time. If the sender dies, a sweep removes the stored parts.
"""

from __future__ import annotations

import io
import secrets
from hashlib import sha256
from typing import Any, BinaryIO

from shardq.base.large_body import LargeBody
from shardq.base.texts import shown
from shardq.core.context.queue_context import QueueContext
from shardq.core.large.layout import (
    GRACE,
    PART_BYTES,
    bodies_queue,
    existing_bodies_queue,
    new_body_id,
    owner_entry,
    part,
    part_id,
    shard_of,
)
from shardq.core.sending.appending import BODY, append
from shardq.core.sending.planned_bundles import PlannedBundle
from shardq.errors import BodyNotFound, InvalidMessage, OutcomeUnknown, StoreUnavailable
from shardq.storage.bundles import decode_bundle

__all__ = ["StoredBody", "carry_body", "keep_body", "open_body", "store_body"]

_KEPT = ""  # names no message


def open_body(context: QueueContext, body: LargeBody, message_id: str) -> io.BufferedReader:
    """Open a file of the body. Its parts are read when they are needed: a missing one raises BodyNotFound then."""
    return io.BufferedReader(_Parts(context, body, message_id))


def load_part(bodies: QueueContext | None, body: LargeBody, number: int, message_id: str) -> bytes:
    """Load the content of one part. Raises BodyNotFound, or InvalidMessage when it is not as long as it must be.

    ``bodies`` is the queue of large bodies; None if there is none.
    """
    shard, identity = shard_of(body.id), part_id(body.id, number)
    found = None if bodies is None else bodies.retry(bodies.store.find, shard, identity, 0)
    if found is None:
        raise BodyNotFound(
            f"part {number + 1} of {body.parts} of the large body of message {message_id} is not stored: the message "
            "has left the queue; open a body before its message is acked, and extend the lease while it is read"
        )
    (content,) = decode_bundle(found.bundle.data).bodies
    if len(content) != min(body.part_bytes, body.size - number * body.part_bytes):
        raise _damaged(message_id)
    return content


def _damaged(message_id: str) -> InvalidMessage:
    return InvalidMessage(
        f"the large body of message {message_id} differs from the one that was sent: its parts are damaged in the store"
    )


class _Parts(io.RawIOBase):
    """The parts of a body in their order. A body that is read from begin to end is checked by its sum."""

    def __init__(self, context: QueueContext, body: LargeBody, message_id: str) -> None:
        super().__init__()
        self._bodies, self._body, self._message_id = existing_bodies_queue(context), body, message_id
        self._position = self._checked = 0
        self._loaded, self._content = -1, b""  # the part that was read last
        self._sum = sha256()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._body.size}[whence]
        self._position = max(0, start + offset)
        return self._position

    def readinto(self, buffer: Any, /) -> int:
        if self._position >= self._body.size:
            return 0
        number, offset = divmod(self._position, self._body.part_bytes)
        if number != self._loaded:
            self._content = load_part(self._bodies, self._body, number, self._message_id)
            self._loaded = number
        some = self._content[offset : offset + len(buffer)]
        buffer[: len(some)] = some
        self._check(some)
        self._position += len(some)
        return len(some)

    def _check(self, some: bytes) -> None:
        if self._checked != self._position:
            return  # read before, or something was left out
        self._sum.update(some)
        self._checked += len(some)
        if self._checked == self._body.size and self._sum.digest() != self._body.sha256:
            raise _damaged(self._message_id)


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
        """The parts that are stored so far. Raises BodyNotFound when they may be removed before a message has them."""
        self._check_time()
        return self.so_far

    @property
    def so_far(self) -> LargeBody:
        """The parts that were stored so far, be they removed or not."""
        return LargeBody(self._id, self._size, self._sum.digest(), PART_BYTES)

    def _check_time(self) -> None:
        """Raise BodyNotFound after half of the time; the other half is for the work after this check."""
        if self._bodies.store.now() - self._changed_at > GRACE // 2:
            raise BodyNotFound(
                f"the stream of a large body stood still for more than {GRACE // 120_000_000} minutes, so that its "
                "stored parts may be removed: send it again"
            )


def store_body(body: StoredBody, stream: BinaryIO) -> LargeBody:
    """Store all that a stream gives. Raises InvalidMessage when that is not bytes, and the errors of the stream."""
    while content := _read(stream):
        body.add(content)
    return body.body


def _read(stream: BinaryIO) -> bytes:
    """Read the next part; shorter than `PART_BYTES` only at the end, whatever the stream gives at a time."""
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
    """Return the body for a copy of a message: the same one in the same store, else a copy of it.

    Raises BodyNotFound.
    """
    if _is_stored(target, body):
        keep_body(target, body)
        if _is_stored(target, body):  # nobody removes it now
            return body
    copy, bodies = StoredBody(target), existing_bodies_queue(source)
    for number in range(body.parts):
        copy.add(load_part(bodies, body, number, message_id))
    return copy.body


def _is_stored(target: QueueContext, body: LargeBody) -> bool:
    """Return whether a body is there: it is stored from its first part on, and removed from its last."""
    bodies, shard = bodies_queue(target), shard_of(body.id)
    ends = (part_id(body.id, number) for number in {0, body.parts - 1} if body.parts)
    return all(bodies.retry(bodies.store.find, shard, each, 0) is not None for each in ends)
