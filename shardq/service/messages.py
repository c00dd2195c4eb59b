"""Endpoints of messages: show them without receiving them, send one, and remove one."""

from __future__ import annotations

import asyncio
import base64
import binascii
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import msgspec

from shardq import Event, StoredMessage
from shardq.client.queue_internals import stored_in
from shardq.errors import InvalidMessage, InvalidSetting
from shardq.service.parameters import ListDeadLetters, ListMessages, Nothing, OneMessage, ScanFilter, Send
from shardq.service.store_access import NotFound, StoreAccess, gathered
from shardq.service.views import Changed, MessagesView, MessageView, Scanned, SentView

__all__ = [
    "DELIVERIES",
    "MOST_SHOWN_IN_LISTS",
    "ORIGIN",
    "PAGE",
    "REASON",
    "SOURCE",
    "list_messages",
    "page_of",
    "pages_of",
    "remove_each",
    "remove_matching",
    "remove_message",
    "scan",
    "send",
    "show_message",
    "shown_message",
    "trace_message",
    "without_hidden",
]

T = TypeVar("T")

REASON, SOURCE, ORIGIN, DELIVERIES = "shardq-reason", "shardq-queue", "shardq-id", "shardq-deliveries"
"""The headers of a dead letter."""

BEFORE, STEP = "shardq-before", "task-step"
"""The headers of a letter that was one before, and of a step of a workflow."""

MOST_SHOWN = 65_536
"""Bytes of a body that are shown unless all of it is asked for."""

MOST_SHOWN_IN_LISTS = 1_024
"""Of each of the 50 bodies of a page, which shows seven lines."""

MOST_DEPTH = 64
PAGE = 50  # messages that are read at a time, as they may be large
_AT_ONCE = 8  # messages that are removed


async def list_messages(access: StoreAccess, name: str, given: ListMessages) -> MessagesView:
    """Return a page of the messages that match, without receiving any."""
    await access.store.settings(name)  # so that a wrong name is reported
    now = await access.client.now()

    async def read() -> MessagesView:
        return await asyncio.to_thread(partial(_scan, access, name, given, now))

    keyed = access.grant.queues if given.header else None  # of the headers that it names, some may be hidden
    found = await access.store.shared.read(("messages", name, given, keyed), read)
    return msgspec.structs.replace(found, messages=[without_hidden(access, each) for each in found.messages])


def _scan(access: StoreAccess, name: str, given: ListMessages, now: datetime) -> MessagesView:
    page, scanned = scan(name, given, _stored(access, name, given), partial(_matches, access, given, now))
    most = MOST_SHOWN_IN_LISTS if given.bodies else None
    return MessagesView(
        messages=[shown_message(access, name, each, most=most) for each in page],
        **msgspec.structs.asdict(scanned),
    )


def _stored(access: StoreAccess, name: str, given: ScanFilter) -> Iterable[StoredMessage]:
    queue = access.store.sync.queue(name)
    if given.blocked:
        return queue.peek(given.scan, blocked=True)
    return islice(stored_in(queue, PAGE), given.scan)


def scan(
    name: str,
    given: ListMessages | ListDeadLetters,
    stored: Iterable[StoredMessage],
    matches: Callable[[StoredMessage], bool],
) -> tuple[list[StoredMessage], Scanned]:
    """Return a page of the messages that match, and how many those are."""
    start, end = (given.page - 1) * given.size, given.page * given.size
    page: list[StoredMessage] = []
    matching = scanned = 0
    for message in stored:
        scanned += 1
        if matches(message):
            if start <= matching < end:
                page.append(message)
            matching += 1
    return page, Scanned(
        queue=name,
        matching=matching,
        scanned=scanned,
        complete=scanned < given.scan,
        page=given.page,
        pages=pages_of(matching, given.size),
    )


def page_of(found: Sequence[T], page: int, size: int) -> list[T]:
    """Return a page of what was found, from 1."""
    return list(found[(page - 1) * size : page * size])


def pages_of(count: int, size: int) -> int:
    """Return how many pages there are, at least one."""
    return max(1, math.ceil(count / size))


def _matches(access: StoreAccess, given: ScanFilter, now: datetime, message: StoredMessage) -> bool:
    age = (now - message.enqueued_at).total_seconds()
    return (
        (not given.state or message.state.value == given.state)
        and (not given.group or message.group == given.group)
        and (given.priority is None or message.priority == given.priority)
        and (given.older is None or age >= given.older)
        and (given.younger is None or age <= given.younger)
        and (not given.header or _has_header(access, given.header, message.headers))
    )


def _has_header(access: StoreAccess, wanted: str, headers: Mapping[str, Any]) -> bool:
    """Return whether a message has a header as ``name`` or ``name=value``, among those that the key sees."""
    name, equals, value = wanted.partition("=")
    matches = name in headers and (not equals or str(headers[name]) == value)
    return matches and not _names_hidden(access, name, headers[name])


def shown_message(
    access: StoreAccess, queue: str, message: StoredMessage, *, most: int | None
) -> MessageView:
    """Return a message as it is shown, with up to ``most`` bytes of its body, or without it."""
    body = message.body
    size = message.large.size if message.large is not None else len(body)
    return MessageView(
        id=message.id,
        queue=queue,
        state=message.state.value,
        priority=message.priority,
        headers={name: _header(value) for name, value in message.headers.items()},
        due=message.due,
        enqueued_at=message.enqueued_at,
        deliveries=message.deliveries,
        size=size,
        group=message.group,
        unique_key=message.unique_key,
        dedupe_key=message.dedupe_key,
        expires_at=message.expires_at,
        owner=message.owner,
        blocked=message.blocked,
        **({} if most is None else _body(access, queue, body, most)),
    )


def without_hidden(access: StoreAccess, message: MessageView) -> MessageView:
    """Return a message without the headers that name a queue which the key does not see."""
    headers = {
        name: value for name, value in message.headers.items() if not _names_hidden(access, name, value)
    }
    return message if headers == message.headers else msgspec.structs.replace(message, headers=headers)


def _names_hidden(access: StoreAccess, header: str, value: Any) -> bool:
    return any(map(access.hides, _queues_in(header, value)))


def _queues_in(header: str, value: Any) -> Iterable[object]:
    """Return the queues that a header names: those that a message was in before, and that of its workflow."""
    if header == BEFORE:
        with suppress(msgspec.MsgspecError, TypeError):
            return [each.get(SOURCE) for each in msgspec.json.decode(value, type=list[dict[str, Any]])]
        return [value]
    return [value] if header in (SOURCE, ORIGIN, STEP) else []


def _header(value: object) -> object:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def _body(access: StoreAccess, queue: str, body: bytes | None, most: int) -> dict[str, Any]:
    if body is None:
        return {"encoding": "large"}
    try:
        shown = _as_bytes(access.shown(queue, body))
    except Exception:  # a mask that fails, or returns what cannot be shown, shows nothing
        shown = None
    return {"encoding": "masked"} if shown is None else _encoded(shown, most)


def _as_bytes(shown: Any) -> bytes | None:
    if isinstance(shown, str):
        return shown.encode("utf-8", "replace")
    if isinstance(shown, bytes | bytearray | None):
        return shown if shown is None else bytes(shown)
    return msgspec.json.encode(shown)


def _encoded(shown: bytes, most: int) -> dict[str, Any]:
    truncated, part = len(shown) > most, shown[:most]
    if not truncated and (value := _json(part)) is not msgspec.UNSET:
        return {"encoding": "json", "body": value}
    try:
        end = next((cut for cut in range(4) if truncated and _is_text(part[: len(part) - cut])), 0)
        return {"encoding": "text", "body": part[: len(part) - end].decode(), "truncated": truncated}
    except UnicodeDecodeError:
        return {"encoding": "base64", "body": base64.b64encode(part).decode(), "truncated": truncated}


def _is_text(part: bytes) -> bool:
    try:
        part.decode()
    except UnicodeDecodeError:
        return False
    return True


def _json(body: bytes) -> Any:
    """Return an object or array; UNSET for other bodies, and for what is nested too deeply to be shown as a tree."""
    if body[:1].strip() not in (b"{", b"["):
        return msgspec.UNSET
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return msgspec.UNSET
    return value if _is_flat(value, MOST_DEPTH) else msgspec.UNSET


def _is_flat(value: Any, depth: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return depth > 0 and all(_is_flat(each, depth - 1) for each in inner)


async def show_message(access: StoreAccess, message_id: str, given: OneMessage) -> MessageView:
    """Return one message in any state."""
    name = message_id.partition(":")[0]

    async def read() -> StoredMessage | None:
        return await (await access.client.queue(name)).get(message_id)

    found = await access.store.shared.read(("message", message_id), read)
    if found is None:
        raise NotFound(f"message {message_id} is not stored: it was processed, moved or removed")
    most = None if not given.body else 2**62 if given.all else MOST_SHOWN
    return without_hidden(access, shown_message(access, name, found, most=most))


async def trace_message(access: StoreAccess, message_id: str, _given: Nothing) -> list[Event]:
    """Return what became of a message, as far as its queue keeps events."""

    async def read() -> Sequence[Event]:
        return await (await access.client.queue(message_id.partition(":")[0])).trace(message_id)

    events = await access.store.shared.read(("trace", message_id), read)
    return [
        msgspec.structs.replace(each, to=None) if access.hides(each.to) else each
        for each in events
        if not access.hides(each.message_id)  # it was in another queue then
    ]


async def send(access: StoreAccess, name: str, given: Send) -> SentView:
    """Send a message."""
    queue = await access.client.queue(name)
    async with queue.producer() as producer:
        sent = await producer.send(
            _sent_body(given),
            headers=given.headers or None,
            priority=given.priority,
            delay=given.delay,
            ttl=given.ttl,
            group=given.group or None,
            dedupe_key=given.dedupe_key or None,
            unique_key=given.unique_key or None,
        )
    return SentView(id=sent)


def _sent_body(given: Send) -> bytes:
    if given.encoding == "base64":
        try:
            return base64.b64decode(given.body, validate=True)
        except (binascii.Error, ValueError) as error:
            raise InvalidMessage(f"body: this is not base64: {error}") from error
    body = given.body.encode("utf-8", "replace")
    if given.encoding == "json":
        try:
            msgspec.json.decode(body)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise InvalidMessage(f"body: this is not JSON: {error}") from error
    return body


async def remove_message(access: StoreAccess, message_id: str, _given: Nothing) -> Changed:
    """Remove one message in any state."""
    return Changed(
        changed=int(await (await access.client.queue(message_id.partition(":")[0])).remove(message_id))
    )


async def remove_matching(access: StoreAccess, name: str, given: ScanFilter) -> Changed:
    """Remove the messages that match, out of the first ``scan`` of the queue, in any state.

    A request has to end soon, so it reads no whole queue as :meth:`shardq.Queue.remove_where` does.
    """
    if given == ScanFilter(scan=given.scan):
        raise InvalidSetting(
            f"state, header, group, priority, older, younger, blocked: give one of them; to remove all messages of "
            f"{name}, purge it"
        )
    now = await access.client.now()

    def choose() -> tuple[list[str], int]:
        stored = list(_stored(access, name, given))
        return [each.id for each in stored if _matches(access, given, now, each)], len(stored)

    ids, scanned = await asyncio.to_thread(choose)
    return await remove_each(access, name, ids, more=scanned >= given.scan)


async def remove_each(access: StoreAccess, name: str, ids: Iterable[str], *, more: bool) -> Changed:
    """Remove messages by their ids, each once. Those that are removed before an error count as changed."""
    queue, places = await access.client.queue(name), asyncio.Semaphore(_AT_ONCE)

    async def remove(identity: str) -> None:
        async with places:
            removed = await queue.remove(identity)
        access.tally.changed += removed

    await gathered(map(remove, dict.fromkeys(ids)))
    return Changed(changed=access.tally.changed, more=more)
