"""A queue of a store, as jobs name it."""

from __future__ import annotations

from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

from shardq.storage.opening import HasUrl

__all__ = ["REPEATABLE_TASKS", "Place"]

REPEATABLE_TASKS = 32
"""Rows are spread by their value over so many tasks where a job may be run again with the rows cut in another way."""


class Place(HasUrl, frozen=True):
    """A queue by the URL of its store and its name."""

    url: str
    queue: str

    def options(self, **chosen: object) -> dict[str, str]:
        """Options of the data source; those that are None are left out."""
        named = {name: str(value) for name, value in chosen.items() if value is not None}
        return {"url": self.url, "queue": self.queue} | named

    def read(self, spark: SparkSession, **chosen: object) -> DataFrame:
        """The queue as a table."""
        return spark.read.format("shardq").options(**self.options(**chosen)).load()

    def stream(self, spark: SparkSession, **chosen: object) -> DataFrame:
        """The queue as a stream."""
        return spark.readStream.format("shardq").options(**self.options(**chosen)).load()

    def writer(self, rows: DataFrame, **chosen: object) -> DataFrameWriter:
        """What sends rows to the queue."""
        return rows.write.format("shardq").options(**self.options(**chosen)).mode("append")
