"""Bundles in a store: their ids, the layout of their data, and when they expire.

Ids are UUIDs of version 7 with microseconds (RFC 9562, section 6.2, method 3). The first 60 bits that are not fixed
count time in 1/4096 of a millisecond. So ids sort by time and, from one :class:`BundleIds`, strictly by the order in
which they were made.

The messages of a bundle are its ``data``: MessagePack, one array. It has the bodies, headers, dedupe keys, move key,
unique key and large body. The first three are arrays of the bundle's length, of which the second and third are nil when
no message has any. The keys are a text or nil. The last describes a body that is stored in parts, or is nil. The last
three may be missing: they came later.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from shardq.base.codec import UNREADABLE
from shardq.base.large_body import LargeBody
from shardq.base.outgoing_message import Bundle
from shardq.errors import InvalidMessage
from shardq.storage.per_process import OwnLock

__all__ = [
    "BUNDLE_ID_BYTES",
    "BundleData",
    "BundleIds",
    "BundleKeys",
    "bundle_ids_until",
    "decode_bundle",
    "decode_keys",
    "derive_bundle_id",
    "encode_bundle",
    "expired",
    "in_queue_since",
    "made_at",
    "read_keys",
    "repeatable_bundle_id",
]

BUNDLE_ID_BYTES = 16
_VERSION = 0x7 << 76
_VARIANT = 0b10 << 62
_RANDOM_MASK = (1 << 62) - 1


class BundleIds:
    """Makes ids that rise strictly, from several threads too."""

    def __init__(self) -> None:
        self._lock = OwnLock()
        self._last = 0

    def new(self, now: int) -> bytes:
        """Make a fresh id for a moment in microseconds."""
        with self._lock.plain:
            self._last = ticks = max((now << 12) // 1000, self._last + 1)
        return _assemble(ticks, int.from_bytes(os.urandom(8), "big") & _RANDOM_MASK)


def bundle_ids_until(now: int, count: int) -> list[bytes]:
    """Make ``count`` fresh ids in rising order: the last is for a moment in microseconds, none for a later one."""
    last = (now << 12) // 1000
    return [_assemble(last - left, _random()) for left in reversed(range(count))]


def derive_bundle_id(source: bytes, *parts: str) -> bytes:
    """Derive the id of a bundle that is made out of another one: the same for the same source and parts.

    A move that is repeated after a crash thereby writes the same bundle again instead of a second one.
    """
    value = int.from_bytes(source, "big") & ~_RANDOM_MASK
    return (value | _digest(source, *parts)).to_bytes(BUNDLE_ID_BYTES, "big")


def repeatable_bundle_id(moment: int, sequence: int, *parts: str) -> bytes:
    """Return the bundle id for a moment in microseconds, a number, and some parts.

    The same arguments give the same id for every caller. The ids of one moment sort by their numbers.
    """
    return _assemble((moment << 12) // 1000 + sequence, _digest(b"", *parts, str(sequence)))


def made_at(bundle_id: bytes) -> int:
    """Return the moment that the id was made for, in microseconds, rounded down to the id's resolution."""
    value = int.from_bytes(bundle_id, "big")
    return ((value >> 80 << 12 | value >> 64 & 0xFFF) * 1000) >> 12


def _random() -> int:
    return int.from_bytes(os.urandom(8), "big") & _RANDOM_MASK


def _digest(key: bytes, *parts: str) -> int:
    from hashlib import blake2b  # noqa: PLC0415 - slow to import, and for moves only

    digest = blake2b("\0".join(parts).encode(), key=key, digest_size=8).digest()
    return int.from_bytes(digest, "big") & _RANDOM_MASK


def _assemble(ticks: int, random: int) -> bytes:
    milliseconds, fraction = ticks >> 12, ticks & 0xFFF
    value = milliseconds << 80 | _VERSION | fraction << 64 | _VARIANT | random
    return value.to_bytes(BUNDLE_ID_BYTES, "big")


class BundleData(msgspec.Struct, array_like=True, frozen=True):
    """The messages of a bundle."""

    bodies: Sequence[bytes]
    headers: Sequence[dict[str, Any] | None] | None = None  # values as in HeaderValue
    dedupe_keys: Sequence[str | None] | None = None
    move_key: str | None = None  # of a message that was moved to its queue, alone in its bundle
    unique_key: str | None = None  # of a message that is alone in its bundle
    large: LargeBody | None = None  # in place of the body, of a message that is alone in its bundle

    def slice(self, first: int, count: int) -> BundleData:
        """Copy ``count`` messages from ``first`` on as another bundle."""
        if count == len(self.bodies):
            return self
        part = slice(first, first + count)
        return BundleData(
            self.bodies[part],
            self.headers and self.headers[part],
            self.dedupe_keys and self.dedupe_keys[part],
        )


class BundleKeys(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The keys of a bundle, without reading its messages."""

    bodies: msgspec.Raw
    headers: msgspec.Raw = msgspec.Raw()
    dedupe_keys: list[str | None] | None = None
    move_key: str | None = None
    unique_key: str | None = None
    large: LargeBody | None = None


encode_bundle: Callable[[BundleData], bytes] = msgspec.msgpack.Encoder().encode
"""The messages as bytes."""

_decoder = msgspec.msgpack.Decoder(BundleData)
read_keys = msgspec.msgpack.Decoder(BundleKeys).decode
"""The keys out of :func:`encode_bundle`; raises one of ``UNREADABLE`` when the bytes are damaged."""


def decode_bundle(data: bytes, first: object = None) -> BundleData:
    """Decode the messages of :func:`encode_bundle`; raises InvalidMessage when the bytes are damaged.

    ``first`` is the id of the first message that is asked for, as far as it is known: the error names it.
    """
    try:
        return _decoder.decode(data)
    except UNREADABLE as error:
        which = "" if first is None else f" with message {first}"
        raise InvalidMessage(
            f"a stored bundle of {len(data)} bytes{which} cannot be read ({error}): remove it by id"
        ) from error


def decode_keys(data: bytes) -> BundleKeys | None:
    """Read the same keys; None when the bytes are damaged."""
    try:
        return read_keys(data)
    except UNREADABLE:
        return None


def in_queue_since(bundle: Bundle) -> int:
    """Return the moment from which the queue's retention counts: that of the send, or of the move into this queue.

    The id of a bundle that was moved from another queue is made for the moment of the move. A message that is moved
    within its queue, by ``release(body=)``, keeps the moment of its old id.
    """
    return max(bundle.enqueued_at, made_at(bundle.id))


def expired(bundle: Bundle, now: int, since: int | None = None) -> bool:
    """Return whether its messages are not delivered any more: they have expired by now, or came before ``since``."""
    if bundle.expires_at is not None and bundle.expires_at <= now:
        return True
    return since is not None and in_queue_since(bundle) < since
