"""How the messages of a bundle are laid out in its ``data``: MessagePack, one array.

``[bodies, headers, dedupe keys]``: three arrays of the bundle's length; the second and third are nil when no
message has any.
"""

from __future__ import annotations

from typing import Any

import msgspec

from shardq.errors import InvalidMessage

__all__ = ["BundleData", "HeaderValue", "Headers", "decode_bundle", "encode_bundle"]

HeaderValue = str | int | float | bool | bytes
Headers = dict[str, HeaderValue]


class BundleData(msgspec.Struct, array_like=True, frozen=True):
    """The messages of a bundle."""

    bodies: list[bytes]
    headers: list[dict[str, Any] | None] | None = None  # values as in HeaderValue
    dedupe_keys: list[str | None] | None = None

    def slice(self, first: int, count: int) -> BundleData:
        """Messages ``first`` .. ``first + count - 1`` as a bundle of their own."""
        if count == len(self.bodies):
            return self
        part = slice(first, first + count)
        return BundleData(
            self.bodies[part],
            self.headers and self.headers[part],
            self.dedupe_keys and self.dedupe_keys[part],
        )


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(BundleData)


def encode_bundle(messages: BundleData) -> bytes:
    """The messages as bytes."""
    return _encoder.encode(messages)


def decode_bundle(data: bytes) -> BundleData:
    """The messages out of :func:`encode_bundle`; raises InvalidMessage when the bytes are damaged."""
    try:
        return _decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise InvalidMessage(
            f"a stored bundle of {len(data)} bytes cannot be read ({error}): remove it by id"
        ) from error
