"""Messages as JSON lines: those that ``send --jsonl`` reads and ``send --unsent`` writes."""

from __future__ import annotations

from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from datetime import UTC, datetime
from typing import Any, cast

import click
import msgspec
from msgspec import UNSET, UnsetType

from shardq.base.codec import JSON, TEXT, UNREADABLE, codec_named
from shardq.base.outgoing_message import Headers, HeaderValue, OnConflict, OutgoingMessage
from shardq.cli.message_view import HeaderObject, HeaderText, header_texts
from shardq.cli.times import coming_moment, duration
from shardq.core.sending.prepared import MIN_TTL_SECONDS, RESERVED_KEYS, prepare_options
from shardq.core.settling.dead_letters import origin
from shardq.errors import InvalidMessage, InvalidReceipt

__all__ = ["MessageLine", "encode_line", "parse_line", "parse_plain"]


class MessageLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One message. The body is a value of the codec, or bytes in ``body_base64``.

    The options of the command apply where a line has none. ``delay``, ``due`` and ``ttl`` are written as there. The
    fields after ``id`` are in the lines of MessageView only: with ``enqueued_at`` a line is a copy of a message.
    """

    body: Any = UNSET
    body_base64: bytes | UnsetType = UNSET
    priority: int | UnsetType = UNSET
    delay: float | str | UnsetType = UNSET
    due: str | UnsetType = UNSET
    headers: dict[str, HeaderText] | UnsetType = UNSET
    dedupe_key: str | UnsetType | None = UNSET
    ttl: float | str | UnsetType = UNSET
    group: str | UnsetType | None = UNSET
    unique_key: str | UnsetType | None = UNSET
    on_conflict: OnConflict | UnsetType = UNSET
    id: str | UnsetType = UNSET
    enqueued_at: datetime | UnsetType = UNSET
    expires_at: datetime | UnsetType | None = UNSET
    large_bytes: int | UnsetType = UNSET
    state: str | UnsetType = UNSET
    blocked: str | UnsetType = UNSET
    deliveries: int | UnsetType = UNSET
    owner: str | UnsetType = UNSET
    receipt: str | UnsetType = UNSET
    lease_until: str | UnsetType = UNSET
    result: Any = UNSET
    result_base64: str | UnsetType = UNSET


_decoder = msgspec.json.Decoder(MessageLine)
_PLAIN_OPTIONS = ("priority", "dedupe_key", "group", "unique_key", "on_conflict", "id")


def parse_line(
    text: bytes, queue: str, codec: str, shared: OutgoingMessage, *, once: bool = False
) -> OutgoingMessage:
    """Parse the message of a JSON line. Raises InvalidMessage if the line or an option in it is wrong.

    A line that was printed of a message is a new message like it. With ``once`` the id that was printed is its dedupe
    key, unless it has a unique key. A byte-order mark in front, as some editors write it into a file, is no part of
    it.
    """
    try:
        line = _decoder.decode(_unmarked(text))
    except UNREADABLE as error:
        hint = '; a header is a string, a number, true or false, or {"base64": ...} for bytes'
        raise InvalidMessage(
            f"not a message in JSON: {error}{hint if '$.headers[' in str(error) else ''}"
        ) from error
    line = _as_new(line, once=once)
    given: dict[str, Any] = {
        name: value
        for name in _PLAIN_OPTIONS
        if (value := getattr(line, name)) is not UNSET and value is not None
    }
    if isinstance(line.headers, dict):
        given["headers"] = {name: _header(value) for name, value in line.headers.items()}
    message = msgspec.structs.replace(shared, body=_body(line, codec), **given, **_times(line))
    try:
        prepare_options(message, queue)
    except InvalidReceipt as error:
        raise InvalidMessage(str(error)) from error
    return message


def parse_plain(text: bytes, codec: str, shared: OutgoingMessage) -> OutgoingMessage:
    """Make the message whose body is the line, read as JSON if the codec takes values. Raises InvalidMessage."""
    if codec == "bytes":
        body = text
    elif codec == "text":
        body = TEXT.encode(TEXT.decode(text))
    else:
        body = codec_named(codec).encode(JSON.decode(_unmarked(text)))
    return msgspec.structs.replace(shared, body=body)


def _unmarked(text: bytes) -> bytes:
    """Remove a byte-order mark from JSON. Raises InvalidMessage for UTF-16."""
    if text.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        raise InvalidMessage("the line begins with the mark of UTF-16: save the file as UTF-8")
    return text.removeprefix(BOM_UTF8)


def encode_line(message: OutgoingMessage, codec: str) -> bytes:
    """Encode a parsed message as a JSON line, which can be sent again with the same codec."""
    body = _value(message.body, codec)
    body_base64 = message.body if body is UNSET else UNSET
    return msgspec.json.encode(
        MessageLine(
            body=body,
            body_base64=body_base64,
            priority=message.priority,
            delay=message.delay or UNSET,
            due=message.due.isoformat() if message.due else UNSET,
            headers=header_texts(dict(message.headers)) if message.headers else UNSET,
            dedupe_key=message.dedupe_key or UNSET,
            ttl=message.ttl if message.ttl is not None else UNSET,
            group=message.group or UNSET,
            unique_key=message.unique_key or UNSET,
            on_conflict=message.on_conflict if message.unique_key else UNSET,
            id=message.id or UNSET,
        )
    )


def _as_new(line: MessageLine, *, once: bool) -> MessageLine:
    """Remove from a line that was printed of a message the parts of that one alone: its id, and a key of shardq's own.

    Of a dead letter its key belongs to it too: in the queue that it came from the key would refuse the copy.
    """
    if line.large_bytes is not UNSET:
        raise InvalidMessage(
            "a large body is not in its line: read it with `shardq receive --output FILE`, "
            "and send it with `shardq send --large FILE`"
        )
    if not isinstance(line.enqueued_at, datetime):
        return line
    if line.blocked is not UNSET:  # due never, until it is redriven: that goes for the other one only
        line = msgspec.structs.replace(line, due=UNSET)
    if once and line.unique_key in (UNSET, None):
        return msgspec.structs.replace(line, id=UNSET, dedupe_key=line.id)
    own_key = isinstance(line.dedupe_key, str) and line.dedupe_key.startswith(RESERVED_KEYS)
    if isinstance(line.headers, dict):
        own_key = own_key or origin(cast("Headers", line.headers)) is not None
    return msgspec.structs.replace(line, id=UNSET, dedupe_key=UNSET if own_key else line.dedupe_key)


def _times(line: MessageLine) -> dict[str, Any]:
    """Read the times of a line. A delay or a due time replaces both options."""
    try:
        delay, ttl = map(_seconds, (line.delay, line.ttl))
        due = coming_moment(line.due) if isinstance(line.due, str) else None
    except click.BadParameter as error:
        raise InvalidMessage(error.message) from None
    if isinstance(line.expires_at, datetime):
        ttl = _left(line.expires_at, due)
    times: dict[str, Any] = {} if ttl is UNSET else {"ttl": ttl}
    if line.delay is UNSET and line.due is UNSET:
        return times
    return times | {"delay": 0.0 if delay is UNSET else delay, "due": due}


def _left(expires_at: datetime, due: datetime | None) -> float:
    """Return the ``ttl`` of a copy that expires when its message does."""
    now = datetime.now(UTC)
    return max((expires_at - max(due or now, now)).total_seconds(), MIN_TTL_SECONDS)


def _seconds(given: float | str | UnsetType) -> float | UnsetType:
    return duration(given) if isinstance(given, str) else given


def _header(value: HeaderText) -> HeaderValue:
    return value.value if isinstance(value, HeaderObject) else value


def _body(line: MessageLine, codec: str) -> bytes:
    if isinstance(line.body_base64, bytes) and line.body is UNSET:
        return line.body_base64
    if line.body is UNSET or line.body_base64 is not UNSET:
        raise InvalidMessage("give either body or body_base64")
    if codec == "bytes" and not isinstance(line.body, str):
        raise InvalidMessage("body is no string: --codec json sends other values")
    return codec_named("text" if codec == "bytes" else codec).encode(line.body)


def _value(body: bytes, codec: str) -> Any:
    """Return the value of a body in a line. UNSET if only ``body_base64`` can hold the body."""
    plain = codec_named("text" if codec == "bytes" else codec)
    try:
        value = JSON.decode(JSON.encode(plain.decode(body)))
        return value if plain.encode(value) == body else UNSET
    except InvalidMessage:
        return UNSET
