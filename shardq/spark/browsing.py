"""Looking at a queue as a table or as a stream: its messages, shards, dead letters and history.

A batch is a period of time, read again as it was for as long as the messages are stored. It ends a safety lag before
now, by the store's clock, so that what is stored late is not missed.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
    Not,
)
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from shardq.base.clock import from_datetime, microseconds, seconds
from shardq.base.shard import Shard
from shardq.core.browsing import slices
from shardq.core.context.queue_context import QueueContext
from shardq.core.settling.dead_letters import dead_letter_name
from shardq.errors import InvalidSetting, QueueNotFound
from shardq.spark.bodies import BodyReader
from shardq.spark.connection import context_of, task_context
from shardq.spark.option_names import FOREVER, moment_of
from shardq.spark.options import BrowseOptions, BrowseStreamOptions
from shardq.spark.rows import Piece, arrow_schema, batches_of, check_schema, piece_of_view, schema_of
from shardq.storage.requests import Peek, StoredSlice, in_queue_since

__all__ = ["BrowseStream", "Browser", "FilteringBrowser", "Pruning", "check_history"]

_COMPARE: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}
_OF_SLICES: dict[str, Callable[[StoredSlice], Any]] = {  # no message has null there
    "priority": lambda stored: stored.bundle.priority,
    "enqueued_at": lambda stored: stored.bundle.enqueued_at,
    "due": lambda stored: stored.due,
    "deliveries": lambda stored: stored.deliveries,
    "state": lambda stored: stored.state.value,
}


@dataclass(frozen=True)
class _Condition:
    column: str
    compare: type[Filter]
    value: Any
    negated: bool = False

    def holds(self, found: Any) -> bool:
        if self.compare is In:
            return (found in self.value) is not self.negated
        return _COMPARE[self.compare](found, self.value) is not self.negated


class Pruning:
    """The conditions of filters on shards and on slices. Without filters nothing is left out."""

    def __init__(self, filters: Iterable[Filter] = ()) -> None:
        known = [condition for each in filters if (condition := _condition(each)) is not None]
        self._of_shard = [each for each in known if each.column == "shard"]
        self._of_slice = [each for each in known if each.column in _OF_SLICES]

    def keeps_shard(self, shard: Shard) -> bool:
        """Return False when no message of the shard passes."""
        return all(each.holds(str(shard)) for each in self._of_shard)

    def keeps(self, stored: StoredSlice) -> bool:
        """Return False when no message of the slice passes."""
        return all(each.holds(_OF_SLICES[each.column](stored)) for each in self._of_slice)

    def period(self, since: int, until: int) -> tuple[int, int]:
        """Return the part of a period that a message may be due in."""
        for each in self._of_slice:
            if each.column != "due" or each.negated or each.compare is In:
                continue
            if each.compare in (GreaterThan, GreaterThanOrEqual, EqualTo, EqualNullSafe):
                since = max(since, each.value)
            if each.compare in (LessThan, LessThanOrEqual, EqualTo, EqualNullSafe):
                until = min(until, each.value + 1)
        return since, max(since, until)


def _condition(given: Filter) -> _Condition | None:
    """Return the usable part of a filter."""
    if isinstance(given, Not):
        inner = _condition(given.child)
        return None if inner is None else _Condition(inner.column, inner.compare, inner.value, True)
    column: tuple[str, ...] = getattr(given, "attribute", ())
    value = getattr(given, "value", None)
    if len(column) != 1 or type(given) not in (In, *_COMPARE):
        return None
    if isinstance(given, In):
        several = _values(given.value)
        return None if several is None else _Condition(column[0], In, several)
    one = _values([value])
    return None if one is None else _Condition(column[0], type(given), one[0])


def _values(values: Sequence[Any]) -> tuple[Any, ...] | None:
    """Convert values to those of slices; None where one cannot be compared."""
    if any(value is None or (isinstance(value, datetime) and value.tzinfo is None) for value in values):
        return None
    return tuple(from_datetime(value) if isinstance(value, datetime) else value for value in values)


PAGE_MESSAGES = 2_000


def pieces_of_shard(
    context: QueueContext,
    shard: Shard,
    *,
    processed: bool,
    bodies: bool,
    since: int,
    until: int,
    keeps: Callable[[StoredSlice], bool] = lambda _: True,
) -> Iterator[Piece]:
    """Yield the messages in a shard: of the history those that were acked in the period, else those that came in it."""
    request = Peek(shard, PAGE_MESSAGES, processed=processed, bodies=bodies)
    if processed:  # a period of pending messages would be one of due times
        request = msgspec.structs.replace(request, since=since, until=until)
    for stored in slices(context, request):
        if keeps(stored) and (processed or since <= in_queue_since(stored.bundle) < until):
            yield piece_of_view(shard, stored)


@dataclass
class ShardPartition(InputPartition):
    """One shard to read; of the history, or of incoming messages, a period in microseconds."""

    shard: Shard
    since: int
    until: int


def batches_in(
    partition: ShardPartition,
    context: QueueContext,
    options: BrowseOptions | BrowseStreamOptions,
    schema: StructType,
    keeps: Callable[[StoredSlice], bool] = lambda _: True,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition."""
    pieces = pieces_of_shard(
        context,
        partition.shard,
        processed=options.view == "history",
        bodies=options.needs_bodies,
        since=partition.since,
        until=partition.until,
        keeps=keeps,
    )
    return batches_of(pieces, arrow_schema(schema), BodyReader(options))


class Browser(DataSourceReader):
    """Reads one shard with each task, while the queue may be in use: not a snapshot."""

    def __init__(self, options: BrowseOptions, schema: StructType) -> None:
        check_schema(schema, schema_of(options))
        self._options, self._schema = options, schema
        self._queue = _queue_of(options)
        self._pruning = Pruning()
        self._since = moment_of("since", options.since, 0)
        self._until = moment_of("until", options.until, FOREVER)

    def partitions(self) -> Sequence[InputPartition]:
        """Return the shards that are in use."""
        context = context_of(self._options, self._queue)
        shards = context.retry(context.store.shards, self._queue)
        since, until = self._since, self._until
        if self._options.view == "history":
            since, until = self._pruning.period(since, until)
        return [ShardPartition(shard, since, until) for shard in shards if self._pruning.keeps_shard(shard)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Read the rows of a shard."""
        if not isinstance(partition, ShardPartition):  # Spark reads once where there is nothing to read
            return iter(())
        return self._batches(partition)

    def _batches(self, partition: ShardPartition) -> Iterator[pa.RecordBatch]:
        with task_context(self._options, self._queue) as context:
            if self._options.view == "shards":
                yield self._counts(context, partition.shard)
                return
            yield from batches_in(partition, context, self._options, self._schema, self._pruning.keeps)

    def _counts(self, context: QueueContext, shard: Shard) -> pa.RecordBatch:
        counts = context.retry(context.store.count, shard)
        age = None if counts.oldest is None else max(0.0, seconds(context.store.now() - counts.oldest))
        row = {
            "shard": str(shard),
            "time_shard": shard.time_shard,
            "number": shard.number,
            "ready": counts.ready,
            "delayed": counts.delayed,
            "in_flight": counts.in_flight,
            "processed": counts.processed,
            "oldest": counts.oldest,
            "age_seconds": age,
        }
        schema = arrow_schema(self._schema)
        return pa.RecordBatch.from_arrays(
            [pa.array([row[field.name]], field.type) for field in schema], schema=schema
        )


class FilteringBrowser(Browser):
    """A browser for queries whose filters Spark hands over. Spark refuses it where its settings forbid that."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        """Look only where the filters may find something; all of them are left to Spark, too."""
        self._pruning = Pruning(filters)
        return filters


def _queue_of(options: BrowseOptions) -> str:
    """Return the queue to read; raises QueueNotFound."""
    context = context_of(options)
    if options.view != "dead":
        return options.queue
    name = dead_letter_name(context.name, context.settings)
    try:
        context.sibling(name)
    except QueueNotFound:
        raise QueueNotFound(
            f"queue {options.queue!r} has no dead-letter queue {name!r}: it was deleted"
        ) from None
    return name


class BrowseStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are ``{"until": microseconds}``."""

    def __init__(self, options: BrowseStreamOptions, schema: StructType) -> None:
        check_schema(schema, schema_of(options))
        self._options, self._schema = options, schema
        self._since = moment_of("since", options.since, -1)
        self._until = moment_of("until", options.until, FOREVER)
        self._last: int | None = None
        check_history(options)

    def initialOffset(self) -> dict[str, Any]:
        """Return where a new query begins."""
        return {"until": self._since if self._since >= 0 else self._ripe()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the messages that can be read now."""
        ripe = self._ripe() if self._last is None else self._last
        return {"until": max(start["until"], ripe)}

    def prepareForTriggerAvailableNow(self) -> None:
        """Read to this moment and no further."""
        self._last = self._ripe()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the shards that are in use."""
        if start["until"] >= end["until"]:
            return []
        context = context_of(self._options)
        shards = context.retry(context.store.shards, context.name)
        return [ShardPartition(shard, start["until"], end["until"]) for shard in shards]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Read the rows of a shard in the period."""
        if not isinstance(partition, ShardPartition):
            return iter(())
        return self._batches(partition)

    def _batches(self, partition: ShardPartition) -> Iterator[pa.RecordBatch]:
        with task_context(self._options) as context:
            yield from batches_in(partition, context, self._options, self._schema)

    def _ripe(self) -> int:
        ripe = context_of(self._options).store.now() - microseconds(self._options.lag_seconds)
        return min(ripe, self._until)


def check_history(options: BrowseStreamOptions) -> None:
    """Raise InvalidSetting when a stream is to read a history that its queue does not keep."""
    if options.view == "history" and context_of(options).settings.history_retention == 0:
        raise InvalidSetting(
            f"option view=history: queue {options.queue!r} keeps no history: `shardq alter {options.queue} "
            "--history-retention 7d`, or give option view=messages"
        )
