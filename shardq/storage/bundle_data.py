"""How the messages of a bundle are laid out in its ``data``: MessagePack, one array.

``[bodies, headers, dedupe keys, move key, unique key, large body]``. The first three are arrays of the bundle's
length, of which the second and third are nil when no message has any. The keys are a text or nil. The last describes a
body that is stored in parts, or is nil. The last three may be missing: they came later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from shardq.base.large_body import LargeBody
from shardq.base.unreadable import UNREADABLE
from shardq.errors import InvalidMessage

__all__ = ["BundleData", "BundleKeys", "decode_bundle", "decode_keys", "encode_bundle", "read_keys"]


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
