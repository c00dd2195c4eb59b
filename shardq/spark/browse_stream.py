"""Looking at a queue as a stream: what comes in, or what was acked, without receiving it.

A batch is a period of time, read again as it was for as long as the messages are stored. It ends a safety lag before
now, by the store's clock, so that what is stored late is not missed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from shardq.base.clock import microseconds
from shardq.errors import InvalidSetting
from shardq.spark.browsing import ShardPartition, batches_in
from shardq.spark.connection import context_of, task_context
from shardq.spark.moments import FOREVER, moment_of
from shardq.spark.options import BrowseStreamOptions
from shardq.spark.row_schema import check_schema, schema_of

__all__ = ["BrowseStream", "check_history"]


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
        """Where a new query begins."""
        return {"until": self._since if self._since >= 0 else self._ripe()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """As far as can be read now."""
        ripe = self._ripe() if self._last is None else self._last
        return {"until": max(start["until"], ripe)}

    def prepareForTriggerAvailableNow(self) -> None:
        """Read to this moment and no further."""
        self._last = self._ripe()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The shards that are in use."""
        if start["until"] >= end["until"]:
            return []
        context = context_of(self._options)
        shards = context.retry(context.store.shards, context.name)
        return [ShardPartition(shard, start["until"], end["until"]) for shard in shards]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """What a shard holds of the period."""
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
    """Raise InvalidSetting when a stream is to look at a history that its queue does not keep."""
    if options.view == "history" and context_of(options).settings.history_retention == 0:
        raise InvalidSetting(
            f"option view=history: queue {options.queue!r} keeps no history: `shardq alter {options.queue} "
            "--history-retention 7d`, or give option view=messages"
        )
