"""Messages as they are printed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from math import isfinite
from typing import Any, Literal, cast

import msgspec
from msgspec import UNSET, UnsetType

from shardq.base.codec import JSON, codec_named
from shardq.base.outgoing_message import Headers, HeaderValue
from shardq.core.message import Message, StoredMessage
from shardq.core.settling.dead_letters import REASON, deliveries_before
from shardq.errors import InvalidMessage, ShardqError, StoreUnavailable
from shardq.storage.requests import Peek, PeekPage
from shardq.storage.store import Store
from shardq.storage.wrapped_store import WrappedStore

__all__ = [
    "HeaderObject",
    "HeaderText",
    "MessageView",
    "ReadableStore",
    "body_text",
    "header_texts",
    "row_of",
    "view_of",
]

PREVIEW = 60


class HeaderObject(msgspec.Struct, frozen=True, omit_defaults=True):
    """A header's value that JSON has no form for: bytes, or a number that is not finite."""

    base64: bytes | UnsetType = UNSET
    number: Literal["nan", "inf", "-inf"] | UnsetType = UNSET

    def __post_init__(self) -> None:
        if (self.base64 is UNSET) == (self.number is UNSET):
            raise ValueError("give either base64 or number")

    @property
    def value(self) -> bytes | float:
        """The value of the header."""
        return float(self.number) if isinstance(self.number, str) else cast("bytes", self.base64)


HeaderText = str | int | float | bool | HeaderObject


class MessageView(msgspec.Struct, frozen=True, kw_only=True):
    """A message in JSON. A body that JSON cannot hold is in ``body_base64``. Of a large one there is the size only."""

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


def view_of(
    message: Message | StoredMessage, codec: str, *, held: bool = False, in_base64: bool = False
) -> MessageView:
    """Describe a message for JSON, with its receipt if ``held``, and with the bytes of its body if ``in_base64``.

    Raises InvalidMessage if the codec cannot read the body.
    """
    body, body_base64 = _body(message, codec, in_base64=in_base64)
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
    """Return a body for printing: its bytes, or its value as JSON. Raises InvalidMessage, which names the message."""
    raw = _raw(message)
    with _naming(message):
        value = codec_named(codec).decode(raw)
        return raw if codec in ("bytes", "text") else JSON.encode(value)


def row_of(message: StoredMessage, codec: str) -> str:
    """Show a message in one line. A dead letter has its reason, a processed message its result."""
    if message.large is not None:
        return _row(message, f"({message.large.size:,} bytes)")
    return _row(message, _preview(body_text(message, codec)))


def _row(message: StoredMessage, short: str) -> str:
    due = "" if message.blocked is not None else f"{message.due:%Y-%m-%d %H:%M:%S}  "  # blocked: never
    deliveries = (
        message.deliveries or deliveries_before(message.headers) or 0
    )  # of a dead letter, those before
    row = f"{message.id}  {_state(message):<9}  p{message.priority}  x{deliveries}  {due}{short}"
    if message.result is not None:
        return f"{row}  -> {_preview(message.result)}"
    reason = message.headers.get(REASON)
    return row if reason is None else f"{row}  ({_preview(str(reason).encode())})"


def _preview(text: bytes) -> str:
    """Show the start of a text in one line."""
    preview = text[: PREVIEW + 1].decode("utf-8", "replace").replace("\n", "\\n")
    return preview if len(preview) <= PREVIEW else preview[: PREVIEW - 1] + "…"


def _state(message: StoredMessage) -> str:
    if message.blocked is not None:
        return f"blocked: {_preview(message.blocked.encode())}"
    return message.state.value if message.owner is None else f"{message.state.value} by {message.owner}"


def _stored(message: Message | StoredMessage, field: str) -> str | UnsetType:
    """Return a field that only a stored message has, if it is one."""
    return getattr(message, field) or UNSET if isinstance(message, StoredMessage) else UNSET


def header_texts(headers: Headers) -> dict[str, HeaderText]:
    """Write headers for JSON."""
    return {name: _header(value) for name, value in headers.items()}


def _header(value: HeaderValue) -> HeaderText:
    if isinstance(value, bytes):
        return HeaderObject(base64=value)
    if isinstance(value, float) and not isfinite(value):
        return HeaderObject(number=cast("Any", str(value)))
    return value


def _body(message: Message | StoredMessage, codec: str, *, in_base64: bool) -> tuple[Any, bytes | UnsetType]:
    if message.large is not None:
        return UNSET, UNSET
    return (UNSET, _raw(message)) if in_base64 else _shown(message, _raw(message), codec)


def _result(message: Message | StoredMessage, codec: str) -> tuple[Any, bytes | UnsetType]:
    if isinstance(message, Message) or message.result is None:
        return UNSET, UNSET
    return _shown(message, message.result, codec)


def _shown(message: Message | StoredMessage, raw: bytes, codec: str) -> tuple[Any, bytes | UnsetType]:
    """Return the value in JSON, or the bytes if JSON cannot hold it."""
    if codec == "bytes":
        try:
            return raw.decode(), UNSET
        except UnicodeDecodeError:
            return UNSET, raw
    with _naming(message):
        value = codec_named(codec).decode(raw)
    return (value, UNSET) if _is_json(value) else (UNSET, raw)


def _is_json(value: Any) -> bool:
    """Return False for a value that JSON changes or cannot hold: it has bytes, a NaN, a number as a key."""
    try:
        return bool(JSON.decode(JSON.encode(value)) == value)
    except (InvalidMessage, RecursionError):
        return False


def _raw(message: Message | StoredMessage) -> bytes:
    return message.raw if isinstance(message, Message) else message.body


@contextmanager
def _naming(message: Message | StoredMessage) -> Iterator[None]:
    """Name the message in the errors of its codec."""
    try:
        yield
    except InvalidMessage as error:
        raise InvalidMessage(
            f"message {message.id}: {error}; without --codec it is shown as it is"
        ) from error


class ReadableStore(WrappedStore):
    """Does what the inner store does, but a peek leaves out the messages that cannot be read, as of a damaged file.

    Of a shard these are the first unreadable message and all behind it. Their error is given to ``skip``.
    """

    def __init__(self, inner: Store, skip: Callable[[ShardqError], None]) -> None:
        super().__init__(inner)
        self._skip = skip

    def peek(self, request: Peek) -> PeekPage:
        """Return a page of a shard, up to the first message that cannot be read."""
        try:
            return super().peek(request)
        except StoreUnavailable as error:
            if error.retryable:
                raise
            if request.limit > 1:  # those of the page before the first unreadable one
                return self.peek(msgspec.structs.replace(request, limit=request.limit // 2))
            text = f"shard {request.shard} is shown up to its first unreadable message: {error}"
            self._skip(StoreUnavailable(text, retryable=False))
            return PeekPage((), b"")
