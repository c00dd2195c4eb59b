"""``format("shardq")``."""

from __future__ import annotations

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
from shardq.spark.browsing import Browser
from shardq.spark.claim_stream import ClaimStream
from shardq.spark.options import (
    BrowseOptions,
    BrowseStreamOptions,
    ClaimStreamOptions,
    SendOptions,
    SettleOptions,
    check_reader,
    choose,
    parse,
)
from shardq.spark.row_schema import schema_of
from shardq.spark.sinks import BatchSettler, BatchWriter, StreamSettler, StreamWriter

__all__ = ["ShardqDataSource"]


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
        view = choose(self.options, "view", "history" if self._browses else "messages")
        body = choose(self.options, "includeBody", "true") not in ("false", "0")
        columns = schema_of(view, body=body, headers=choose(self.options, "includeHeaders", "false"))
        check_reader(self.options)
        return columns

    def reader(self, schema: StructType) -> DataSourceReader:
        """Looks at the queue."""
        return Browser(parse(BrowseOptions, self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Receives messages, or looks at what comes in."""
        if self._browses:
            return BrowseStream(parse(BrowseStreamOptions, self.options), schema)
        return ClaimStream(parse(ClaimStreamOptions, self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Sends rows, or settles receipts."""
        if choose(self.options, "operation", "send") != "send":
            return BatchSettler(schema, parse(SettleOptions, self.options), overwrite=overwrite)
        return BatchWriter(schema, parse(SendOptions, self.options), overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """Sends rows, or settles receipts, micro-batch by micro-batch."""
        if overwrite:
            raise InvalidSetting('a queue is written with outputMode("append")')
        if choose(self.options, "operation", "send") != "send":
            return StreamSettler(schema, parse(SettleOptions, self.options))
        return StreamWriter(schema, parse(SendOptions, self.options))

    @property
    def _browses(self) -> bool:
        return choose(self.options, "mode", "claim") == "browse"
