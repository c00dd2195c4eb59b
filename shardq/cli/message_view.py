"""Messages as they are printed."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from shardq.codec import codec_named
from shardq.errors import InvalidMessage
from shardq.message import Message, StoredMessage
from shardq.outgoing_message import Headers, HeaderValue
from shardq.settling.dead_letters import REASON

__all__ = ["Base64", "HeaderText", "MessageView", "body_text", "header_texts", "row_of", "view_of"]

PREVIEW = 60


class Base64(msgspec.Struct, frozen=True):
    """Bytes in JSON. A plain string would be text."""

    base64: bytes


HeaderText = str | int | float | bool | Base64


class MessageView(msgspec.Struct, frozen=True, kw_only=True):
    """A message in JSON. A body that is not UTF-8 is in ``body_base64``. A large one is left out, but for its size."""

    id: str
    body: Any = UNSET
    body_base64: bytes | UnsetType = UNSET
    large_bytes: int | UnsetType = UNSET
    headers: dict[str, HeaderText]
    priority: int
    state: str | UnsetType = UNSET
    due: datetime
    enqueued_at: datetime
    deliveries: int
    dedupe_key: str | None
    expires_at: datetime | None = None
    group: str | None = None
    unique_key: str | None
    result: Any = UNSET
    result_base64: bytes | UnsetType = UNSET
    owner: str | UnsetType = UNSET
    blocked: str | UnsetType = UNSET
    receipt: str | UnsetType = UNSET
    lease_until: datetime | UnsetType = UNSET


def view_of(message: Message | StoredMessage, codec: str, *, held: bool = False) -> MessageView:
    """A message for JSON, with its receipt if ``held``. Raises InvalidMessage if the codec cannot read the body."""
    body, body_base64 = _shown(message, _raw(message), codec) if message.large is None else (UNSET, UNSET)
    result, result_base64 = _result(message, codec)
    return MessageView(
        id=message.id,
        body=body,
        body_base64=body_base64,
        large_bytes=UNSET if message.large is None else message.large.size,
        headers=header_texts(message.headers),
        priority=message.priority,
        state=message.state.value if isinstance(message, StoredMessage) else UNSET,
        due=message.due,
        enqueued_at=message.enqueued_at,
        deliveries=message.deliveries,
        dedupe_key=message.dedupe_key,
        expires_at=message.expires_at,
        group=message.group,
        unique_key=message.unique_key,
        result=result,
        result_base64=result_base64,
        owner=_stored(message, "owner"),
        blocked=_stored(message, "blocked"),
        receipt=message.receipt if held and isinstance(message, Message) else UNSET,
        lease_until=message.lease_until if held and isinstance(message, Message) else UNSET,
    )


def body_text(message: Message | StoredMessage, codec: str) -> bytes:
    """A body for printing: its bytes, or its value as JSON. Raises InvalidMessage, which names the message."""
    value = _value(message, _raw(message), codec)
    return _raw(message) if codec in ("bytes", "text") else msgspec.json.encode(value)


def row_of(message: StoredMessage, codec: str) -> str:
    """A message in one line. A dead letter with its reason, a processed message with its result."""
    if message.large is not None:
        return _row(message, f"({message.large.size:,} bytes)")
    return _row(message, _preview(body_text(message, codec)))


def _row(message: StoredMessage, short: str) -> str:
    due = "" if message.blocked is not None else f"{message.due:%Y-%m-%d %H:%M:%S}  "  # blocked: never
    row = f"{message.id}  {_state(message):<9}  p{message.priority}  x{message.deliveries}  {due}{short}"
    if message.result is not None:
        return f"{row}  -> {_preview(message.result)}"
    reason = message.headers.get(REASON)
    return row if reason is None else f"{row}  ({_preview(str(reason).encode())})"


def _preview(text: bytes) -> str:
    """The start of it, in one line."""
    preview = text[: PREVIEW + 1].decode("utf-8", "replace").replace("\n", "\\n")
    return preview if len(preview) <= PREVIEW else preview[: PREVIEW - 1] + "…"


def _state(message: StoredMessage) -> str:
    if message.blocked is not None:
        return f"blocked: {_preview(message.blocked.encode())}"
    return message.state.value if message.owner is None else f"{message.state.value} by {message.owner}"


def _stored(message: Message | StoredMessage, field: str) -> str | UnsetType:
    """What is known of a stored message only, if it is."""
    return getattr(message, field) or UNSET if isinstance(message, StoredMessage) else UNSET


def header_texts(headers: Headers) -> dict[str, HeaderText]:
    """Headers for JSON."""
    return {name: _header(value) for name, value in headers.items()}


def _header(value: HeaderValue) -> HeaderText:
    return Base64(value) if isinstance(value, bytes) else value


def _result(message: Message | StoredMessage, codec: str) -> tuple[Any, bytes | UnsetType]:
    if isinstance(message, Message) or message.result is None:
        return UNSET, UNSET
    return _shown(message, message.result, codec)


def _shown(message: Message | StoredMessage, raw: bytes, codec: str) -> tuple[Any, bytes | UnsetType]:
    if codec != "bytes":
        return _value(message, raw, codec), UNSET
    try:
        return raw.decode(), UNSET
    except UnicodeDecodeError:
        return UNSET, raw


def _raw(message: Message | StoredMessage) -> bytes:
    return message.raw if isinstance(message, Message) else message.body


def _value(message: Message | StoredMessage, raw: bytes, codec: str) -> Any:
    try:
        return codec_named(codec).decode(raw)
    except InvalidMessage as error:
        raise InvalidMessage(
            f"message {message.id}: {error}; without --codec it is shown as it is"
        ) from error
