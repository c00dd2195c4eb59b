"""Parameters of endpoints: those of a URL, or the JSON of a body. Unknown names are refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl

import msgspec

from shardq.service.problems import Refused

__all__ = [
    "Confirmed",
    "CreateQueue",
    "Evict",
    "ListConsumers",
    "ListDeadLetters",
    "ListMessages",
    "ListQueues",
    "ListTasks",
    "ListWorkflows",
    "Nothing",
    "OneMessage",
    "Pause",
    "Redrive",
    "RemoveMessages",
    "ScanFilter",
    "ScheduleId",
    "Send",
    "Settings",
    "Shards",
    "fields_of",
    "read_fields",
]

MOST_SCANNED = 10_000

Page = Annotated[int, msgspec.Meta(ge=1, le=1_000_000, description="The page, from 1.")]
PageSize = Annotated[int, msgspec.Meta(ge=1, le=200, description="Entries of a page.")]
Scan = Annotated[int, msgspec.Meta(ge=1, le=MOST_SCANNED, description="Messages of the queue that are read.")]
Priority = Annotated[int, msgspec.Meta(ge=0, le=9)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e10)]
Text = Annotated[str, msgspec.Meta(max_length=500)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=210)]
Id = Annotated[str, msgspec.Meta(min_length=1, max_length=300)]
Ids = Annotated[list[Id], msgspec.Meta(min_length=1, max_length=MOST_SCANNED)]


class Nothing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """No parameters."""


class ListQueues(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which queues, and in which order. With ``exact`` the counts of the page are read now, however long that takes."""

    search: Text = ""
    sort: Literal["name", "ready", "in_flight", "delayed", "dead", "age", "consumers"] = "name"
    page: Page = 1
    size: PageSize = 50
    exact: bool = True


class CreateQueue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A new queue, with settings that differ from the defaults."""

    name: Name
    settings: dict[str, str | int | float | bool | None] = {}


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings to change."""

    settings: dict[str, str | int | float | bool | None]


class Confirmed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The name of what is purged or deleted, typed again."""

    confirm: Text


class Pause(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Deliveries, sends or both."""

    delivery: bool = True
    sends: bool = False


class Shards(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """By what shards are coloured."""

    by: Literal["depth", "age"] = "depth"


class ScanFilter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which messages of the first ``scan``. A ``header`` is ``name`` or ``name=value``; ages are since the send.

    It is no ``shardq.MessageFilter``: a page shows any state, priority and header that people look for, and a
    request reads a bounded part of the queue. That one has what scripts select by, and reads the whole queue.
    """

    state: Literal["", "ready", "delayed", "in_flight"] = ""
    header: Text = ""
    group: Text = ""
    priority: Priority | None = None
    older: Seconds | None = None
    younger: Seconds | None = None
    blocked: bool = False
    scan: Scan = 1_000


class ListMessages(ScanFilter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A page of the messages that match; ``bodies`` shows these."""

    bodies: bool = False
    page: Page = 1
    size: PageSize = 50


class OneMessage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether the body is shown, and its events."""

    body: bool = False
    all: bool = False
    """The whole body, of any size, instead of its first 64 KiB."""


class Send(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message to send. ``encoding`` says what ``body`` is: text, JSON or base64."""

    body: str = ""
    encoding: Literal["text", "json", "base64"] = "text"
    headers: dict[str, str] = {}
    priority: Priority = 4
    delay: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 0.0
    ttl: Annotated[float, msgspec.Meta(gt=0, le=1e9)] | None = None
    group: Text | None = None
    dedupe_key: Text | None = None
    unique_key: Text | None = None


class ListDeadLetters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which dead letters of a dead-letter queue. ``reason`` is a part of their reason."""

    reason: Text = ""
    source: Text = ""
    bodies: bool = False
    page: Page = 1
    size: PageSize = 50
    scan: Scan = 1_000


class Redrive(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which dead letters of a dead-letter queue go back: those of ``ids``, else those that match, else all.

    ``reason`` is a part of their reason, in the same case; ``source`` is the queue that they came from.
    """

    ids: Ids | None = None
    reason: Text = ""
    source: Text = ""


class RemoveMessages(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which messages are removed: those of ``ids``, else the dead letters that match the reason and the source.

    ``reason`` is a part of their reason, in the same case; ``source`` is the queue that they came from.
    """

    ids: Ids | None = None
    reason: Text = ""
    source: Text = ""


class Evict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A consumer, by name or id; with ``force`` even if it may be alive."""

    consumer: Text
    force: bool = False


class ListConsumers(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of which queues: one, or those whose names contain ``search``."""

    search: Text = ""


class ListTasks(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which tasks."""

    queue: Annotated[str, msgspec.Meta(max_length=210)] = ""
    state: Literal["", "waiting", "running", "failed"] = ""
    name: Text = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 100


class ListWorkflows(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which workflows."""

    state: Literal["", "running", "done", "failed", "cancelled"] = ""
    name: Text = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 100


class ScheduleId(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The id of a schedule."""

    id: Text


_MOST_FIELDS = 2_000


def fields_of(encoded: bytes) -> list[tuple[str, str]]:
    """Return the fields of a query or a form. Raises Refused."""
    try:
        return parse_qsl(
            encoded.decode("ascii"),
            keep_blank_values=True,
            max_num_fields=_MOST_FIELDS,
            errors="strict",
        )
    except ValueError as error:
        raise Refused(400, "invalid_parameters", f"the parameters cannot be read: {error}") from error


def read_fields(kind: type, fields: Sequence[tuple[str, str]]) -> Any:
    """Return a struct of fields that are text. Raises Refused for one that is repeated, unknown or wrong."""
    if len(given := dict(fields)) < len(fields):
        raise Refused(400, "invalid_parameters", "a parameter is repeated: give each once")
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise Refused(400, "invalid_parameters", str(error)) from error
