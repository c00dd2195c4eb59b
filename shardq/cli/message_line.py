"""Messages as JSON lines: what ``send --jsonl`` reads and ``send --unsent`` writes."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from shardq.cli.message_view import Base64, HeaderText, header_texts
from shardq.codec import JSON, TEXT, codec_named
from shardq.errors import InvalidMessage
from shardq.message import OutgoingMessage
from shardq.storage.bundle_data import HeaderValue

__all__ = ["MessageLine", "encode_line", "parse_line", "parse_plain"]


class MessageLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One message: its body is a value of the codec, or bytes in ``body_base64``.

    What a line does not say, the options of the command say.
    """

    body: Any = UNSET
    body_base64: bytes | UnsetType = UNSET
    priority: int | UnsetType = UNSET
    delay: float | UnsetType = UNSET
    due: datetime | UnsetType = UNSET
    headers: dict[str, HeaderText] | UnsetType = UNSET
    dedupe_key: str | UnsetType = UNSET
    id: str | UnsetType = UNSET


_decoder = msgspec.json.Decoder(MessageLine)


def parse_line(text: bytes, codec: str, shared: OutgoingMessage) -> OutgoingMessage:
    """A message out of a JSON line; raises InvalidMessage."""
    try:
        line = _decoder.decode(text)
    except msgspec.MsgspecError as error:
        raise InvalidMessage(f"not a message in JSON: {error}") from error
    given: dict[str, Any] = {
        name: value
        for name, value in msgspec.structs.asdict(line).items()
        if value is not UNSET and name not in ("body", "body_base64", "headers")
    }
    if isinstance(line.headers, dict):
        given["headers"] = {name: _header(value) for name, value in line.headers.items()}
    if "due" in given or "delay" in given:  # either takes the place of both
        given = {"due": None, "delay": 0.0} | given
    return msgspec.structs.replace(shared, body=_body(line, codec), **given)


def parse_plain(text: bytes, codec: str, shared: OutgoingMessage) -> OutgoingMessage:
    """A message out of a line that is its body, in JSON where the codec takes values; raises InvalidMessage."""
    if codec == "bytes":
        body = text
    elif codec == "text":
        body = TEXT.encode(TEXT.decode(text))
    else:
        body = codec_named(codec).encode(JSON.decode(text))
    return msgspec.structs.replace(shared, body=body)


def encode_line(message: OutgoingMessage) -> bytes:
    """A message as a JSON line that can be sent again; its body is bytes, its codec is done."""
    body: str | UnsetType = UNSET
    body_base64: bytes | UnsetType = UNSET
    try:
        body = message.body.decode()
    except UnicodeDecodeError:
        body_base64 = message.body
    return msgspec.json.encode(
        MessageLine(
            body=body,
            body_base64=body_base64,
            priority=message.priority,
            delay=message.delay or UNSET,
            due=message.due or UNSET,
            headers=header_texts(dict(message.headers)) if message.headers else UNSET,
            dedupe_key=message.dedupe_key or UNSET,
            id=message.id or UNSET,
        )
    )


def _header(value: HeaderText) -> HeaderValue:
    return value.base64 if isinstance(value, Base64) else value


def _body(line: MessageLine, codec: str) -> bytes:
    if isinstance(line.body_base64, bytes) and line.body is UNSET:
        return line.body_base64
    if line.body is UNSET or line.body_base64 is not UNSET:
        raise InvalidMessage("give either body or body_base64")
    if codec == "bytes" and not isinstance(line.body, str):
        raise InvalidMessage("body is no string: --codec json sends other values")
    return codec_named("text" if codec == "bytes" else codec).encode(line.body)
