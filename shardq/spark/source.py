"""``format("shardq")``."""

from __future__ import annotations

import sys

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from shardq.errors import InvalidSetting
from shardq.spark.browse_stream import BrowseStream, check_history
from shardq.spark.browsing import Browser, FilteringBrowser
from shardq.spark.claim_stream import ClaimStream
from shardq.spark.commit_log import CommitLog
from shardq.spark.options import (
    BrowseOptions,
    BrowseStreamOptions,
    ClaimStreamOptions,
    SendOptions,
    SettleOptions,
    check_reader,
    choose,
    for_a_sink,
    parse,
    stream_kind,
)
from shardq.spark.row_schema import schema_of
from shardq.spark.sinks import BatchSettler, BatchWriter, StreamSettler, StreamWriter
from shardq.spark.subscriptions import located
from shardq.spark.tables import of_the_user, remember, remembered

__all__ = ["ShardqDataSource"]


_PUSHDOWN = "pyspark.sql.worker.data_source_pushdown_filters"
"""What Spark runs where it hands filters over. Elsewhere it refuses a reader that could take them."""


class ShardqDataSource(DataSource):
    """Queues as tables and streams. Spark makes one for each use, on the driver.

    Found by Spark itself where shardq is installed; where it comes with ``--py-files``, register it:
    ``spark.dataSource.register(ShardqDataSource)``.
    """

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
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
        """Look at the queue."""
        browser = FilteringBrowser if _PUSHDOWN in sys.modules else Browser
        return browser(located(parse(BrowseOptions, self._options(schema))), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Receive messages, or look at what comes in."""
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
        """The options that were given here, and those with which the table was made."""
        return remembered(schema) | of_the_user(self.options)

    def _options_to_write(self, schema: StructType) -> dict[str, str]:
        """The options that were given here, and those of the table that are not for its readers."""
        given, kept = of_the_user(self.options), remembered(schema)
        return for_a_sink(kept, sends=choose(given, "operation", "send") == "send") | given
