"""The options of ``format("shardq")``: which there are for each use, their types and limits.

Spark hands every option over as text and with its name in lower case.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Annotated, Literal, TypeVar

import msgspec

from shardq.base.shard import check_queue_name
from shardq.base.texts import shown
from shardq.errors import InvalidSetting
from shardq.spark.option_names import FOREVER, moment_of, nearest
from shardq.storage.opening import HasUrl, check_between_processes

__all__ = [
    "BrowseOptions",
    "BrowseStreamOptions",
    "ClaimStreamOptions",
    "QueueOptions",
    "RowOptions",
    "SendOptions",
    "SettleOptions",
    "check_reader",
    "choose",
    "for_a_sink",
    "parse",
    "stream_kind",
]

_Count = Annotated[int, msgspec.Meta(ge=1, le=10_000_000)]
_Seconds = Annotated[float, msgspec.Meta(ge=0.0, le=3.2e8)]
_Lease = Annotated[float, msgspec.Meta(ge=1.0, le=604_800.0)]
_Text = Annotated[str, msgspec.Meta(min_length=1)]

KEPT_WITH_BODIES = frozenset({"body", "corrupt_body", "dedupe_key", "headers"})
"""Columns for which a store reads the bodies."""

_NOUNS = {"bool": "true or false", "int": "a whole number", "float": "a number", "str": "a text"}
_SPARKS_OWN = frozenset({"queryname"})
_DAY = 86_400.0


class QueueOptions(HasUrl, frozen=True, kw_only=True, rename="camel"):
    """Which queue of which store, or which topic."""

    url: _Text
    queue: _Text = ""  # empty where there is a topic, until `located` fills it in
    topic: _Text | None = None
    subscription: _Text | None = None
    retry_seconds: Annotated[float, msgspec.Meta(ge=0.0, le=3_600.0)] = 15.0
    checkpoint_location: _Text | None = None  # Spark's own; a stream that receives looks there for commits


class RowOptions(QueueOptions, frozen=True, kw_only=True, rename="camel"):
    """The columns of a reader's rows."""

    columns: _Text | None = None  # their names with commas; None: all
    include_body: bool = True
    include_headers: Literal["false", "true", "packed"] = "false"
    body_format: Literal["binary", "text", "json", "avro"] = "binary"
    body_schema: _Text | None = None  # JSON: DDL, or schema.json(); Avro: the writer's schema
    body_mode: Literal["permissive", "failfast"] = "permissive"  # what becomes of a body that cannot be read

    @property
    def chosen(self) -> tuple[str, ...] | None:
        """The columns that are asked for, in their order; None: all."""
        return None if self.columns is None else tuple(name.strip() for name in self.columns.split(","))

    @property
    def needs_bodies(self) -> bool:
        """False when nothing is asked for that is kept with the bodies."""
        if self.chosen is not None:
            return not KEPT_WITH_BODIES.isdisjoint(self.chosen)
        return self.include_body or self.include_headers != "false"


class BrowseOptions(RowOptions, frozen=True, kw_only=True, rename="camel"):
    """Looking at a queue without receiving anything."""

    view: Literal["messages", "shards", "dead", "history"] = "messages"
    since: str | None = None  # ISO 8601; of the history: acked then or later, of messages: sent then or later
    until: str | None = None  # before


class ClaimStreamOptions(RowOptions, frozen=True, kw_only=True, rename="camel"):
    """Receiving messages as a stream."""

    mode: Literal["claim", "browse"] = "claim"
    group: _Text = "spark"
    max_messages_per_trigger: _Count = 100_000
    min_messages_per_trigger: _Count = 1  # with fewer a batch waits
    max_trigger_delay_seconds: _Seconds = 900.0  # for no longer than this
    min_partitions: _Count = 1  # tasks of a batch, as far as there are shards
    max_partitions: _Count = 10_000_000
    backlog_seconds: _Seconds | None = (
        None  # how often pending messages are counted, for the progress of the query
    )
    lease_seconds: _Lease = 300.0
    ack_mode: Literal["commit", "manual"] = "commit"
    fail_on_lease_loss: bool = False
    replay_window_seconds: Annotated[float, msgspec.Meta(ge=3_600.0, le=3.2e8)] = _DAY  # above any batch


class BrowseStreamOptions(RowOptions, frozen=True, kw_only=True, rename="camel"):
    """Browsing incoming messages, or acked ones, as a stream."""

    mode: Literal["claim", "browse"] = "browse"
    view: Literal["messages", "history"] = "history"
    lag_seconds: _Seconds = 5.0  # nothing younger is read: what is stored late must not be missed
    since: str | None = None  # where a new query begins; None: at its start
    until: str | None = None  # where it has nothing more to read; None: never


class SendOptions(QueueOptions, frozen=True, kw_only=True, rename="camel"):
    """Sending rows."""

    operation: Literal["send"] = "send"
    body_column: _Text = "body"
    id_column: _Text | None = None
    priority_column: _Text | None = None
    due_column: _Text | None = None
    headers_column: _Text | None = None
    key_column: _Text | None = None
    delay_column: _Text | None = None
    ttl_column: _Text | None = None
    group_column: _Text | None = None
    dedupe_key_column: _Text | None = None  # a column of that name alone is passed over: readers make one
    unique_key_column: _Text | None = None
    subject_column: _Text | None = None  # of topics
    shard_by: Literal["rotate", "key"] = "rotate"
    input_order: Literal["any", "stable"] = "any"
    bundle_messages: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 500
    concurrent_writes: Annotated[int, msgspec.Meta(ge=1, le=64)] = 2
    throughput_rows_per_sec: Annotated[float, msgspec.Meta(gt=0.0, le=1e12)] | None = None  # of each task
    run_id: Annotated[str, msgspec.Meta(min_length=1, max_length=120)] | None = None
    replay_window_seconds: _Seconds = _DAY
    fail_on_replay_conflict: bool | None = None  # by default a job fails, and a stream continues
    truncate: bool = False


class SettleOptions(QueueOptions, frozen=True, kw_only=True, rename="camel"):
    """Acking, releasing, extending or dead-lettering messages by their receipts."""

    operation: Literal["ack", "release", "extend", "dead_letter"]
    receipt_column: _Text = "receipt"
    delay_seconds: _Seconds = 0.0  # release: until they are delivered again
    lease_seconds: _Lease = 300.0  # extend: from now on
    reason: _Text = "rejected by a Spark job"  # dead_letter: a header has it
    fail_on_lease_loss: bool = False


Kind = TypeVar("Kind", bound=QueueOptions)
_USES: dict[type[QueueOptions], str] = {
    BrowseOptions: "tables (spark.read)",
    ClaimStreamOptions: "streams with mode=claim",
    BrowseStreamOptions: "streams with mode=browse",
    SendOptions: "sinks that send",
    SettleOptions: "sinks with an operation",
}
_SPELLED = {
    field.encode_name.lower(): field.encode_name for kind in _USES for field in msgspec.structs.fields(kind)
}


def choose(given: Mapping[str, str], name: str, default: str) -> str:
    """Return one option, read before it is known which others there may be."""
    return _lower(given).get(name.lower(), default).lower()


def for_a_sink(given: Mapping[str, str], *, sends: bool) -> dict[str, str]:
    """Return the options of a table without those that only its readers have, such as ``bodyFormat``.

    The table of a subscription is one, too: rows that are sent there are published to its topic.
    """
    only_for_readers = _fields(BrowseOptions).keys() - _fields(SendOptions).keys()
    if sends:
        only_for_readers |= {"subscription"}
    return {name: value for name, value in given.items() if name.lower() not in only_for_readers}


def check_reader(given: Mapping[str, str]) -> RowOptions:
    """Return the options of a reader; raises InvalidSetting when neither a stream nor a table can have these.

    When Spark asks for the columns of a reader it does not say which of the two it is for. A ``mode`` is that of a
    stream, and options that both could have are checked as those of the stream.
    """
    stream = stream_kind(given)
    kinds: tuple[type[RowOptions], ...] = (stream,) if "mode" in _lower(given) else (stream, BrowseOptions)
    _check_names(given, {name for kind in kinds for name in _fields(kind)})
    fitting = [kind for kind in kinds if _lower(given).keys() <= _fields(kind).keys()]
    return parse(fitting[0] if fitting else kinds[0], given)


def stream_kind(given: Mapping[str, str]) -> type[ClaimStreamOptions] | type[BrowseStreamOptions]:
    """Return the kind of stream for these options: without a mode, a ``view`` makes it a browser."""
    names = _lower(given).keys()
    implied = (
        choose(given, "view", "") in ("messages", "history") and names <= _fields(BrowseStreamOptions).keys()
    )
    mode = choose(given, "mode", "browse" if implied else "claim")
    return BrowseStreamOptions if mode == "browse" else ClaimStreamOptions


def parse(kind: type[Kind], given: Mapping[str, str]) -> Kind:
    """Return the options for one use; raises InvalidSetting naming the first that is missing, unknown or wrong."""
    fields = _fields(kind)
    _check_names(given, fields)
    for name, field in fields.items():
        if field.required and name not in _lower(given):
            raise _missing(field.encode_name)
    chosen = _convert(kind, {fields[name].encode_name: value for name, value in _lower(given).items()})
    check_between_processes(chosen.url, "the workers of Spark are processes of their own")
    _check_place(chosen)
    if isinstance(chosen, ClaimStreamOptions):
        _check_bounds("MessagesPerTrigger", chosen.min_messages_per_trigger, chosen.max_messages_per_trigger)
        _check_bounds("Partitions", chosen.min_partitions, chosen.max_partitions)
        if chosen.ack_mode == "manual" and "receipt" not in (chosen.chosen or ("receipt",)):
            raise InvalidSetting(
                "option columns is without 'receipt', by which ackMode=manual settles: add it"
            )
    if isinstance(chosen, BrowseOptions | BrowseStreamOptions):
        _check_period(chosen, given)
    if isinstance(chosen, RowOptions) and chosen.body_schema and chosen.body_format in ("binary", "text"):
        raise InvalidSetting(
            f"option bodySchema={chosen.body_schema!r} is not used with bodyFormat={chosen.body_format}: "
            "add option bodyFormat=json or avro, or leave it out"
        )
    return chosen


def _missing(name: str, why: str = "") -> InvalidSetting:
    return InvalidSetting(f"option {name!r} is missing{why}: give .option({name!r}, ...)")


def _check_place(chosen: QueueOptions) -> None:
    """Raise InvalidSetting unless one queue, subscription or, for a sink, topic is named; InvalidName for no name."""
    if chosen.queue:
        check_queue_name(chosen.queue)
    for name in ("topic", "subscription"):
        if chosen.queue and getattr(chosen, name) is not None:
            raise InvalidSetting(
                f"options queue={chosen.queue!r} and {name}={getattr(chosen, name)!r} are both given: leave one of "
                "them out"
            )
    if chosen.topic is None:
        if chosen.subscription is not None:
            raise _missing("topic", f" beside subscription={chosen.subscription!r}")
        if not chosen.queue:
            raise _missing("queue")
    elif isinstance(chosen, SendOptions):
        if chosen.subscription is not None:
            raise InvalidSetting(
                f"option subscription={chosen.subscription!r} cannot be used to send: rows that are published to topic "
                f"{chosen.topic!r} go to all of its subscriptions; leave subscription out"
            )
    elif chosen.subscription is None:
        why = (
            f" beside topic={chosen.topic!r} (did you mean 'queue'?), as a topic is read by its subscriptions"
        )
        raise _missing("subscription", why)


def _check_period(chosen: BrowseOptions | BrowseStreamOptions, given: Mapping[str, str]) -> None:
    """Raise InvalidSetting for moments that are none, or that the view does not have."""
    since, until = moment_of("since", chosen.since, -1), moment_of("until", chosen.until, FOREVER)
    if since >= until:
        raise InvalidSetting(
            f"option since={chosen.since!r} is not before until={chosen.until!r}: give an earlier moment"
        )
    for name in ("since", "until"):
        value = getattr(chosen, name)
        if value is None:
            continue
        if chosen.view == "shards":
            raise InvalidSetting(f"option {name}={value!r} is not used with view=shards: leave it out")
        if not {"view", "mode"} & _lower(given).keys():
            raise InvalidSetting(
                f"option {name}={value!r} does not say of what: add option view=history (what was acked) or "
                "view=messages (what was sent), which only reads and receives nothing"
            )


def _check_bounds(name: str, least: int, most: int) -> None:
    if least > most:
        raise InvalidSetting(f"option min{name}={least} is above max{name}={most}: lower it")


def _fields(kind: type[QueueOptions]) -> dict[str, msgspec.structs.FieldInfo]:
    """Return the options that there are for a use, by their names in lower case."""
    return {field.encode_name.lower(): field for field in msgspec.structs.fields(kind)}


def _check_names(given: Mapping[str, str], known: Collection[str]) -> None:
    for name, value in _lower(given).items():
        if name not in known:
            spelled = [_SPELLED[one] for one in sorted(known)]
            near = nearest(name, spelled)
            meant = "" if near is None else f" (did you mean {near!r}?)"
            uses = [use for kind, use in _USES.items() if name in _fields(kind)]
            elsewhere = f", which is for {' and '.join(uses)}" if uses else ""
            raise InvalidSetting(
                f"option {name!r} is not known here{meant}: leave out {name}={_shown(name, value)}{elsewhere}; "
                f"use {', '.join(spelled)}"
            )


def _shown(name: str, value: str) -> str:
    """Return the value of an option, unless it may hold a password."""
    is_secret = re.search("url|uri|server|endpoint|pass|secret|token|key|user|login", name.lower())
    return "..." if is_secret else shown(value[:100])


def _convert(kind: type[Kind], chosen: dict[str, str]) -> Kind:
    try:
        return msgspec.convert(chosen, kind, strict=False)
    except msgspec.ValidationError as error:
        text, _, place = str(error).partition(" - at `$.")
        name = place.rstrip("`")
        value = "..." if name == "url" else shown(chosen.get(name, ""))
        raise InvalidSetting(f"option {name}={value} cannot be used: {_explain(kind, name, text)}") from error


def _explain(kind: type[QueueOptions], name: str, text: str) -> str:
    """Return a remedy for an error of msgspec, such as "Expected `int` >= 1"."""
    for field in msgspec.structs.fields(kind):
        values = getattr(field.type, "__args__", ())
        if field.encode_name == name and values and all(isinstance(value, str) for value in values):
            return f"use one of {', '.join(values)}"
    wanted = re.match("Expected `([a-z]+)[^`]*`(?:, got .*)?(.*)", text)
    return text[:1].lower() + text[1:] if wanted is None else f"give {_NOUNS[wanted[1]]}{wanted[2]}"


def _lower(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options of this source."""
    return {name.lower(): value for name, value in given.items() if name.lower() not in _SPARKS_OWN}
