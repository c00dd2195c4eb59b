"""A message to be sent, and the bundle in which it may be stored already."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

import msgspec

__all__ = [
    "DEFAULT_PRIORITY",
    "SEPARATOR",
    "TASK_HEADER",
    "Bundle",
    "HeaderValue",
    "Headers",
    "OnConflict",
    "OutgoingMessage",
    "RetryToken",
    "group_of",
    "lane_of",
    "stored_group",
]

DEFAULT_PRIORITY = 5
SEPARATOR = "\x1f"  # between a group and the number of its lane, as they are stored
TASK_HEADER = "task"  # the name of the task that a message calls

HeaderValue = str | int | float | bool | bytes
Headers = dict[str, HeaderValue]
OnConflict = Literal["keep", "raise", "replace"]
"""The action when another message has the unique key: "keep" stores nothing and returns the id of the other message,
"raise" raises UniqueKeyTaken, and "replace" takes the place of the other message."""


class Bundle(msgspec.Struct, frozen=True, gc=False):
    """Messages that were sent together: the unit that is stored. It never moves and is never rewritten.

    Its fields are those that its messages share, and those that are read without bodies.
    """

    id: bytes  # 16 bytes, unique among all queues; sorts by send order within one producer
    priority: int  # 0 first .. 9 last
    due: int  # not delivered before
    enqueued_at: int
    count: int  # messages in it, 1 or more
    data: bytes  # their bodies and headers; opaque to a store
    expires_at: int | None = None  # not delivered from then on; a store keeps it, and its callers go by it
    group: str = ""  # the ordering key of all of them; "": they have none


def group_of(stored: str) -> str | None:
    """Return the group that a message was sent with, without its lane; None: it has none."""
    return stored.partition(SEPARATOR)[0] or None


def lane_of(stored: str) -> int:
    """Return the number of the lane that a message is in; 0, the first one, where its queue has no others."""
    return int(stored.partition(SEPARATOR)[2] or 0)


def stored_group(group: str, lane: int) -> str:
    """Join a group and the number of one of its lanes, as they are stored. The first lane has the group's name."""
    return f"{group}{SEPARATOR}{lane}" if lane else group


class RetryToken(msgspec.Struct, frozen=True):
    """The bundle in which a message was sent. Repeating the send of the message stores this bundle again.

    Applications pass it on as it is.
    """

    bundle: Bundle

    def __repr__(self) -> str:
        return f"<RetryToken {self.bundle.id.hex()}>"


class OutgoingMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message to be sent with its own options.

    ``delay`` is in seconds from now. ``due`` is an aware ``datetime``. At most one of them is given. ``ttl`` is in
    seconds from when the message is due. Shardq sets ``id`` and ``attempt`` on the messages in ``unsent`` of
    :class:`~shardq.PartialSend` and :class:`~shardq.OutcomeUnknown`: sending such a message again cannot store it
    twice.

    >>> OutgoingMessage(body=b"one", priority=1, delay=5).priority
    1
    """

    body: Any
    priority: int = DEFAULT_PRIORITY
    delay: float = 0.0
    due: datetime | None = None
    headers: Mapping[str, HeaderValue] | None = None
    dedupe_key: str | None = None
    ttl: float | None = None
    group: str | None = None
    unique_key: str | None = None
    on_conflict: OnConflict = "keep"
    id: str | None = None
    attempt: RetryToken | None = None
