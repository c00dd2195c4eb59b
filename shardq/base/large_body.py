"""The description of a message's large body."""

from __future__ import annotations

import msgspec

from shardq.errors import InvalidMessage

__all__ = ["LargeBody", "no_large_body", "not_in_memory"]


class LargeBody(msgspec.Struct, array_like=True, frozen=True):
    """A body that is stored in parts. The message holds this in its place, and :meth:`shardq.Message.open` reads it.

    ``size`` is in bytes. To send it as a body makes another message with the same content, and copies nothing.

    >>> import io
    >>> queue = shardq.connect(url).create_queue("films")
    >>> with queue.producer() as producer:
    ...     id = producer.send_stream(io.BytesIO(b"frame" * 1_000_000))
    >>> with queue.consumer() as consumer:
    ...     (message,) = consumer.receive()
    ...     with message.open() as film:
    ...         print(message.large.size, film.read(5))
    ...     message.ack()
    5000000 b'frame'
    """

    id: bytes  # 16 bytes; those of its parts and of its owners' entries begin with the first twelve
    size: int
    sha256: bytes
    part_bytes: int  # of each part but the last

    @property
    def parts(self) -> int:
        """In how many parts it is stored."""
        return -(-self.size // self.part_bytes)


def not_in_memory(message_id: str, body: LargeBody) -> InvalidMessage:
    """Make the error for reading a large body as a value."""
    return InvalidMessage(
        f"the body of message {message_id} is large, {body.size:,} bytes: read it with `message.open()`"
    )


def no_large_body(message_id: str) -> InvalidMessage:
    """Make the error for opening the body of a message that has no large one."""
    return InvalidMessage(f"message {message_id} has no large body to open: it is in `message.body`")
