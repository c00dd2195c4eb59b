"""``format("shardq")``."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from shardq.errors import InvalidSetting
from shardq.spark.browse_stream import BrowseStream
from shardq.spark.browsing import Browser, FilteringBrowser
from shardq.spark.claim_stream import ClaimStream
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
)
from shardq.spark.row_schema import schema_of
from shardq.spark.sinks import BatchSettler, BatchWriter, StreamSettler, StreamWriter
from shardq.spark.subscriptions import with_queue
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
        """The columns of a reader with these options; raises InvalidSetting in ``load()`` for what none can take."""
        given = of_the_user(self.options)
        columns = schema_of(check_reader(with_queue(given)))
        return remember(columns, given) if given != dict(self.options) else columns

    def reader(self, schema: StructType) -> DataSourceReader:
        """Looks at the queue."""
        browser = FilteringBrowser if _PUSHDOWN in sys.modules else Browser
        return browser(parse(BrowseOptions, self._options(schema)), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Receives messages, or looks at what comes in."""
        given = self._options(schema)
        if _browses(given):
            return BrowseStream(parse(BrowseStreamOptions, given), schema)
        return ClaimStream(parse(ClaimStreamOptions, given), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Sends rows, or settles receipts."""
        given = self._options_to_write(schema)
        if choose(given, "operation", "send") != "send":
            return BatchSettler(schema, parse(SettleOptions, given), overwrite=overwrite)
        return BatchWriter(schema, parse(SendOptions, given), overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """Sends rows, or settles receipts, micro-batch by micro-batch."""
        if overwrite:
            raise InvalidSetting('a queue is written with outputMode("append")')
        given = self._options_to_write(schema)
        if choose(given, "operation", "send") != "send":
            return StreamSettler(schema, parse(SettleOptions, given))
        return StreamWriter(schema, parse(SendOptions, given))

    def _options(self, schema: StructType) -> dict[str, str]:
        """The options that were given here, and those with which the table was made."""
        return with_queue(remembered(schema) | of_the_user(self.options))

    def _options_to_write(self, schema: StructType) -> dict[str, str]:
        """The options that were given here, and those of the table that are not for its readers."""
        kept = for_a_sink(remembered(schema))
        return with_queue(kept | of_the_user(self.options))


def _browses(given: Mapping[str, str]) -> bool:
    return choose(given, "mode", "claim") == "browse"
