"""format("shardq"), with topics as sinks, subscriptions as sources, and queues as tables of a catalog.

Spark hands the options of a table over when it is made, and never again. So the schema keeps them, as metadata of its
first column. Spark gives that metadata to the rows that are inserted, too.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TypeVar

import msgspec
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceWriter,
)
from pyspark.sql.types import StructField, StructType

from shardq.client import connect
from shardq.errors import InvalidSetting
from shardq.spark.browsing import Browser, BrowseStream, FilteringBrowser, check_history
from shardq.spark.claim_stream import ClaimStream
from shardq.spark.options import (
    BrowseOptions,
    BrowseStreamOptions,
    ClaimStreamOptions,
    QueueOptions,
    SendOptions,
    SettleOptions,
    check_reader,
    choose,
    for_a_sink,
    parse,
    stream_kind,
)
from shardq.spark.rows import schema_of
from shardq.spark.sinks import BatchSettler, BatchWriter, StreamSettler, StreamWriter
from shardq.spark.stream_upkeep import CommitLog
from shardq.topics.names import log_of

__all__ = ["ShardqDataSource", "located", "of_the_user", "remember", "remembered"]

_KEPT = "shardq"
_OF_CATALOGS = frozenset({"provider", "owner", "location", "external", "comment", "collation", "table_type"})
_COPIES = "option."  # a catalog gives each option a second time


def of_the_user(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options without those that a catalog adds when a table is made."""
    if "provider" not in given:
        return dict(given)
    return {
        name: value
        for name, value in given.items()
        if name.lower() not in _OF_CATALOGS and not name.lower().startswith(_COPIES)
    }


def remember(columns: StructType, options: Mapping[str, str]) -> StructType:
    """Keep the options in the columns for later."""
    first, *rest = columns.fields
    kept = StructField(first.name, first.dataType, first.nullable, {_KEPT: dict(options)})
    return StructType([kept, *rest])


def remembered(schema: StructType) -> dict[str, str]:
    """Return the options with which the table of these columns was made; none: it is not a table."""
    return {name: value for field in schema.fields for name, value in field.metadata.get(_KEPT, {}).items()}


Options = TypeVar("Options", bound=QueueOptions)


def located(options: Options) -> Options:
    """Return the options with the queue of the subscription that they name, or with the log of the topic, if any.

    Raises TopicNotFound or SubscriptionNotFound. The queue is looked up for each use: it has another name when the
    subscription was deleted and made again.
    """
    if options.topic is None:
        return options
    with connect(options.url, retry_seconds=options.retry_seconds) as client:
        topic = client.topic(options.topic)
        if options.subscription is None:
            queue = log_of(topic.name)
        else:
            queue = topic.subscription(options.subscription).queue.name
    return msgspec.structs.replace(options, queue=queue)


_PUSHDOWN = "pyspark.sql.worker.data_source_pushdown_filters"
"""The module that Spark runs where it hands filters over. Elsewhere it refuses a reader that could take them."""


class ShardqDataSource(DataSource):
    """Queues as tables and streams. Spark makes one for each use, on the driver.

    Found by Spark itself where shardq is installed; where it comes with ``--py-files``, register it:
    ``spark.dataSource.register(ShardqDataSource)``.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "shardq"

    def schema(self) -> StructType:
        """Return the columns of a reader with these options; raises InvalidSetting in ``load()`` for wrong ones."""
        given = of_the_user(self.options)
        options = located(check_reader(given))
        if isinstance(options, ClaimStreamOptions) and options.checkpoint_location is not None:
            CommitLog(options.checkpoint_location)  # refuses a place that Python cannot read
        if isinstance(options, BrowseStreamOptions) and choose(given, "mode", ""):  # it cannot be for a table
            check_history(options)
        columns = schema_of(options)
        return remember(columns, given) if given != dict(self.options) else columns

    def reader(self, schema: StructType) -> DataSourceReader:
        """Browse the queue."""
        browser = FilteringBrowser if _PUSHDOWN in sys.modules else Browser
        return browser(located(parse(BrowseOptions, self._options(schema))), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Receive messages, or browse incoming ones."""
        given = self._options(schema)
        if stream_kind(given) is BrowseStreamOptions:
            return BrowseStream(located(parse(BrowseStreamOptions, given)), schema)
        return ClaimStream(located(parse(ClaimStreamOptions, given)), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Send rows, or settle receipts."""
        given = self._options_to_write(schema)
        if choose(given, "operation", "send") != "send":
            return BatchSettler(schema, located(parse(SettleOptions, given)), overwrite=overwrite)
        return BatchWriter(schema, located(parse(SendOptions, given)), overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """Send rows, or settle receipts, micro-batch by micro-batch."""
        if overwrite:
            raise InvalidSetting('a queue is written with outputMode("append")')
        given = self._options_to_write(schema)
        if choose(given, "operation", "send") != "send":
            return StreamSettler(schema, located(parse(SettleOptions, given)))
        return StreamWriter(schema, located(parse(SendOptions, given)))

    def _options(self, schema: StructType) -> dict[str, str]:
        """Return the options that were given here, and those with which the table was made."""
        return remembered(schema) | of_the_user(self.options)

    def _options_to_write(self, schema: StructType) -> dict[str, str]:
        """Return the options that were given here, and those of the table that are not for its readers."""
        given, kept = of_the_user(self.options), remembered(schema)
        return for_a_sink(kept, sends=choose(given, "operation", "send") == "send") | given
