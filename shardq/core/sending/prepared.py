"""Messages that are to be sent: the checks of their options and bodies, and the checked form."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeGuard, get_args

import msgspec

from shardq.base.clock import from_datetime, is_aware, microseconds, seconds, to_datetime
from shardq.base.large_body import LargeBody
from shardq.base.outgoing_message import (
    DEFAULT_PRIORITY,
    SEPARATOR,
    Headers,
    OnConflict,
    OutgoingMessage,
    RetryToken,
    group_of,
)
from shardq.base.receipt import MessageId
from shardq.base.texts import kind_of, plain, shown
from shardq.errors import InvalidMessage

__all__ = [
    "LAST_MOMENT",
    "MAX_DELAY_SECONDS",
    "MAX_TTL_SECONDS",
    "MIN_TTL_SECONDS",
    "RESERVED_KEYS",
    "Send",
    "are_several",
    "check_bodies",
    "check_delay",
    "check_headers",
    "check_priority",
    "check_unique_key",
    "expiry_of",
    "prepare_options",
    "size_of",
]

MAX_DELAY_SECONDS = 10 * 366 * 86_400.0
MIN_TTL_SECONDS, MAX_TTL_SECONDS = 0.001, MAX_DELAY_SECONDS
LAST_MOMENT = from_datetime(datetime.max.replace(tzinfo=UTC))
MAX_HEADERS = 100
MAX_HEADER_NAME_LENGTH = 200
MAX_KEY_LENGTH = 200
MAX_GROUP_LENGTH = 200
RESERVED_KEYS = "shardq-"  # what moves, copies, runs and named claims keep begins so
_CONFLICTS = get_args(OnConflict)
_LANE = re.compile("[1-9][0-9]{0,2}")
_INT64 = range(-(2**63), 2**64)


class Send(msgspec.Struct, frozen=True):
    """Messages that can be stored, with the checked options that they share, in the order of their sends.

    A message with a key, an id or a large body is alone.
    """

    priority: int = DEFAULT_PRIORITY
    delay: int = 0  # microseconds from now
    due: int | None = None  # microseconds since the epoch, instead of the delay
    headers: Headers | None = None
    dedupe_key: str | None = None
    unique_key: str | None = None
    on_conflict: OnConflict = "keep"
    group: str = ""  # with its lane once that is chosen; "": none
    id: MessageId | None = None
    attempt: RetryToken | None = None
    ttl: int | None = None  # microseconds from the due time
    items: Sequence[Any] = ()  # as they were given; none while only options are checked
    bodies: Sequence[bytes] = ()
    large: LargeBody | None = None  # instead of the body, which is empty then

    def moment(self, now: int) -> int:
        """Return the due time; never in the past."""
        return now + self.delay if self.due is None else max(now, self.due)

    def each(self) -> list[Send]:
        """Return its messages, one by one."""
        return [
            msgspec.structs.replace(self, items=[item], bodies=[body])
            for item, body in zip(self.items, self.bodies, strict=True)
        ]

    def described(self, item: Any) -> OutgoingMessage:
        """Return a message as hooks see it: as it was given, with the options that hold for it."""
        return item if isinstance(item, OutgoingMessage) else self.outgoing(item)

    def outgoing(self, item: Any) -> OutgoingMessage:
        """Return a message with the options as they were checked."""
        return OutgoingMessage(
            body=item.body if isinstance(item, OutgoingMessage) else item,
            priority=self.priority,
            delay=seconds(self.delay),
            due=None if self.due is None else to_datetime(self.due),
            headers=self.headers,
            dedupe_key=self.dedupe_key,
            ttl=None if self.ttl is None else seconds(self.ttl),
            group=group_of(self.group),
            unique_key=self.unique_key,
            on_conflict=self.on_conflict,
        )


def expiry_of(due: int, ttl: int | None) -> int | None:
    """Return the moment until which a message is delivered that is due then; None: for ever."""
    return None if ttl is None else min(due + ttl, LAST_MOMENT)


def prepare_options(message: OutgoingMessage, queue: str) -> Send:
    """Check everything but the body; raises InvalidMessage, which names the fault."""
    return Send(
        DEFAULT_PRIORITY if message.priority is DEFAULT_PRIORITY else check_priority(message.priority),
        0 if type(message.delay) is float and not message.delay else check_delay(message.delay),
        None if message.due is None else _check_due(message.due, message.delay),
        None if message.headers is None else check_headers(message.headers),
        None if message.dedupe_key is None else _check_dedupe_key(message.dedupe_key),
        None if message.unique_key is None and message.on_conflict == "keep" else _check_unique(message),
        message.on_conflict,
        "" if message.group is None else _check_group(message.group, message.id),
        None if message.id is None else MessageId.parse(message.id, queue),
        None if message.attempt is None else _check_attempt(message.attempt),
        None if message.ttl is None else _check_ttl(message.ttl),
    )


def size_of(headers: Headers | None) -> int:
    """Return the bytes of headers, as they count towards the limit."""
    if headers is None:
        return 0
    values = headers.items()
    return sum(len(name) + (len(value) if isinstance(value, str | bytes) else 8) for name, value in values)


def are_several(bodies: object) -> TypeGuard[Iterable[Any]]:
    """Return False for one body, the parts of which would be sent as messages, and for a value without parts."""
    one = isinstance(bodies, str | bytes | bytearray | memoryview | Mapping)
    return not one and isinstance(bodies, Iterable)


def check_bodies(bodies: object, alone: str = "send one body with `send`") -> None:
    """Raise InvalidMessage unless these are several bodies."""
    if not are_several(bodies):
        raise InvalidMessage(
            f"bodies={shown(bodies)} is {kind_of(bodies)}: give a list or another iterable of bodies, or {alone}"
        )


def check_delay(delay: object) -> int:
    """Return a delay in seconds as microseconds.

    Raises InvalidMessage when it is not a number, negative or above ten years.
    """
    if isinstance(delay, bool) or not isinstance(delay, int | float):
        raise InvalidMessage(f"delay={shown(delay)} is {kind_of(delay)}: give seconds, 0 or more")
    if not 0 <= delay <= MAX_DELAY_SECONDS:  # a NaN is in no range
        raise InvalidMessage(
            f"delay={shown(delay)} is out of range: give seconds from 0 to {MAX_DELAY_SECONDS:.0f}"
        )
    return microseconds(delay)


def _check_ttl(ttl: object) -> int:
    if isinstance(ttl, bool) or not isinstance(ttl, int | float):
        raise InvalidMessage(f"ttl={shown(ttl)} is {kind_of(ttl)}: give seconds, or None for no end")
    if not MIN_TTL_SECONDS <= ttl <= MAX_TTL_SECONDS:  # a NaN is in no range
        raise InvalidMessage(
            f"ttl={shown(ttl)} is out of range: give seconds from {MIN_TTL_SECONDS} to {MAX_TTL_SECONDS:.0f}, "
            "or None for no end"
        )
    return microseconds(ttl)


def check_priority(priority: object) -> int:
    """Return the priority; raises InvalidMessage when it is not a whole number from 0 to 9."""
    if isinstance(priority, bool) or not isinstance(priority, int) or not 0 <= priority <= 9:
        raise InvalidMessage(f"priority={shown(priority)}: give a whole number from 0 (first) to 9 (last)")
    return plain(priority)


def _check_due(due: object, delay: float) -> int:
    if not is_aware(due):
        raise InvalidMessage(
            f"due={shown(due)}: give an aware datetime, such as datetime.now(UTC) + timedelta(hours=1)"
        )
    if delay:
        raise InvalidMessage(
            f"delay={shown(delay)} and due={due.isoformat()} are both given: give one of them"
        )
    moment = from_datetime(due)
    if moment > LAST_MOMENT:
        raise InvalidMessage(f"due={shown(due)} is after the year 9999 in UTC: give an earlier moment")
    return moment


def _check_attempt(attempt: object) -> RetryToken:
    if not isinstance(attempt, RetryToken):
        raise InvalidMessage(
            f"attempt={shown(attempt)} is {kind_of(attempt)}: leave it out, or send the message of `error.unsent`"
        )
    return attempt


def _check_dedupe_key(key: object) -> str:
    key = _check_key("dedupe_key", key)
    if key.startswith(RESERVED_KEYS):
        raise InvalidMessage(
            f"dedupe_key={key!r}: keys that begin with {RESERVED_KEYS!r} are shardq's own, give another one"
        )
    return key


def _check_group(group: object, identity: str | None) -> str:
    if (
        not isinstance(group, str)
        or not 1 <= len(group_of(group) or "") <= MAX_GROUP_LENGTH
        or not _encodable(group)
    ):
        raise InvalidMessage(f"group={shown(group)}: give a str of 1 to {MAX_GROUP_LENGTH} characters")
    if SEPARATOR in group and (identity is None or not _LANE.fullmatch(group.partition(SEPARATOR)[2])):
        raise InvalidMessage(
            f"group={group!r}: the character {SEPARATOR!r} is shardq's own, give another name"
        )
    return plain(group)


def check_unique_key(key: object) -> str:
    """Return the unique key; raises InvalidMessage when it cannot be one."""
    return _check_key("unique_key", key)


def _check_unique(message: OutgoingMessage) -> str | None:
    """Return the unique key, after checking the action on a conflict and that there is no dedupe key."""
    key, conflict = message.unique_key, message.on_conflict
    if conflict not in _CONFLICTS:
        raise InvalidMessage(f"on_conflict={shown(conflict)}: give 'keep', 'raise' or 'replace'")
    if key is None:
        if conflict != "keep":
            raise InvalidMessage(f"on_conflict={shown(conflict)} is given without a unique_key: give both")
        return None
    if message.dedupe_key is not None:
        raise InvalidMessage(
            f"dedupe_key={shown(message.dedupe_key)} and unique_key={shown(key)} are both given: give the first to be "
            "alone for the queue's dedupe_window, or the second to be alone while the message is in the queue"
        )
    return check_unique_key(key)


def _check_key(name: str, key: object) -> str:
    if not isinstance(key, str) or not 1 <= len(key) <= MAX_KEY_LENGTH or not _encodable(key):
        raise InvalidMessage(f"{name}={shown(key)}: give a str of 1 to {MAX_KEY_LENGTH} characters")
    return plain(key)


def check_headers(headers: Mapping[str, Any] | None) -> Headers | None:
    """Copy the headers, None if there are none; raises InvalidMessage for one that cannot be stored."""
    if headers is None or (isinstance(headers, Mapping) and not headers):
        return None
    if not isinstance(headers, Mapping):
        raise InvalidMessage(
            f"headers={shown(headers)} are {kind_of(headers)}: give a mapping of str to values"
        )
    if len(headers) > MAX_HEADERS:
        raise InvalidMessage(f"{len(headers)} headers: give at most {MAX_HEADERS}")
    for name, value in headers.items():
        _check_header(name, value)
    return {plain(name): value for name, value in headers.items()}


def _check_header(name: object, value: object) -> None:
    if not isinstance(name, str) or not 1 <= len(name) <= MAX_HEADER_NAME_LENGTH or not _encodable(name):
        raise InvalidMessage(
            f"header name {shown(name)}: give a str of 1 to {MAX_HEADER_NAME_LENGTH} characters"
        )
    if type(value) not in (str, int, float, bool, bytes):
        raise InvalidMessage(
            f"header {name!r}={shown(value)} is {kind_of(value)}: give a str, int, float, bool or bytes"
        )
    if isinstance(value, int) and value not in _INT64:
        raise InvalidMessage(f"header {name!r}={shown(value)}: give an int of at most 64 bits, or a str")
    if isinstance(value, str) and not _encodable(value):
        raise InvalidMessage(f"header {name!r}={shown(value)} is not valid text: give bytes instead")


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
