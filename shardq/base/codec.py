"""Codecs: they turn the values that an application sends into the bytes of a body, and back."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from shardq.base.large_body import LargeBody
from shardq.base.texts import kind_of, shown
from shardq.errors import InvalidMessage, InvalidSetting

__all__ = ["BYTES", "JSON", "MSGPACK", "TEXT", "UNREADABLE", "Codec", "check_codec", "codec_named"]

UNREADABLE = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)
"""The errors that msgspec's decoders raise: for text in a value that is no UTF-8, it is a bare UnicodeDecodeError."""


class Codec(Protocol):
    """Turns values into bodies and back. Each producer and each consumer has its own."""

    def encode(self, value: Any) -> bytes:
        """Encode a value as a body. Raises InvalidMessage if the codec cannot write the value."""
        ...

    def decode(self, body: bytes) -> Any:
        """Decode the value of a body. Raises InvalidMessage if the codec cannot read the body."""
        ...


class _Bytes:
    def encode(self, value: Any) -> bytes:
        if type(value) is bytes:
            return value
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(memoryview(value))  # of a subclass its own content
        raise InvalidMessage(
            f"body {shown(value)} is {kind_of(value)}: give bytes, or a codec, such as codec=shardq.JSON"
        )

    def decode(self, body: bytes) -> bytes:
        return body

    def __repr__(self) -> str:
        return "shardq.BYTES"


class _Text:
    def encode(self, value: Any) -> bytes:
        if not isinstance(value, str):
            raise InvalidMessage(f"body {shown(value)} is {kind_of(value)}: the text codec takes str")
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise InvalidMessage(f"body {shown(value)} is no valid text: {error}") from error

    def decode(self, body: bytes) -> str:
        try:
            return body.decode()
        except UnicodeDecodeError as error:
            raise InvalidMessage(f"body {shown(body)} is no UTF-8: {error}") from error

    def __repr__(self) -> str:
        return "shardq.TEXT"


class _Msgspec:
    def __init__(self, name: str, encoder: Any, decoder: Any) -> None:
        self._name, self._encoder, self._decoder = name, encoder, decoder

    def encode(self, value: Any) -> bytes:
        if type(value) is LargeBody:  # which could be written, and would be no body any more
            raise InvalidMessage(
                f"{value!r} is the body of another message: give it to `producer.send` alone"
            )
        try:
            return self._encoder.encode(value)  # type: ignore[no-any-return]
        except (
            msgspec.MsgspecError,
            TypeError,
            ValueError,
            OverflowError,
            RecursionError,
            BufferError,
        ) as error:
            raise InvalidMessage(f"body {shown(value)} cannot be written as {self._name}: {error}") from error

    def decode(self, body: bytes) -> Any:
        try:
            return self._decoder.decode(body)
        except UNREADABLE as error:
            raise InvalidMessage(f"body {shown(body)} is no {self._name}: {error}") from error

    def __repr__(self) -> str:
        return "shardq.JSON" if self._name == "JSON" else "shardq.MSGPACK"


BYTES: Codec = _Bytes()
TEXT: Codec = _Text()
JSON: Codec = _Msgspec("JSON", msgspec.json.Encoder(), msgspec.json.Decoder())
MSGPACK: Codec = _Msgspec("MessagePack", msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder())

_BY_NAME = {"bytes": BYTES, "text": TEXT, "json": JSON, "msgpack": MSGPACK}


def check_codec(codec: Codec) -> Codec:
    """Return the codec. Raises InvalidSetting if it cannot encode and decode: the name of a codec cannot."""
    if callable(getattr(codec, "encode", None)) and callable(getattr(codec, "decode", None)):
        return codec
    raise InvalidSetting(f"codec={shown(codec)} is no codec: give one such as shardq.JSON")


def codec_named(name: str) -> Codec:
    """Return the codec with the name ``bytes``, ``text``, ``json`` or ``msgpack``.

    Raises InvalidSetting for another name.
    """
    try:
        return _BY_NAME[name]
    except KeyError:
        raise InvalidSetting(f"codec {name!r} is unknown: use one of {', '.join(_BY_NAME)}") from None
