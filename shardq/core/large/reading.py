"""Reading a large body as a file, a part at a time."""

from __future__ import annotations

import io
from hashlib import sha256
from typing import Any

from shardq.base.large_body import LargeBody
from shardq.core.context.queue_context import QueueContext
from shardq.core.large.layout import part_id, shard_of
from shardq.core.large.queue import existing_bodies_queue
from shardq.errors import BodyNotFound, InvalidMessage
from shardq.storage.bundle_data import decode_bundle

__all__ = ["load_part", "open_body"]


def open_body(context: QueueContext, body: LargeBody, message_id: str) -> io.BufferedReader:
    """A file of the body. Its parts are read when they are needed: a missing one raises BodyNotFound then."""
    return io.BufferedReader(_Parts(context, body, message_id))


def load_part(bodies: QueueContext | None, body: LargeBody, number: int, message_id: str) -> bytes:
    """The content of one part. Raises BodyNotFound, or InvalidMessage when it is not as long as it must be.

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
        f"the large body of message {message_id} is not what was sent: its parts are damaged in the store"
    )


class _Parts(io.RawIOBase):
    """The parts of a body in their order. What is read from its begin to its end is checked by its sum."""

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
