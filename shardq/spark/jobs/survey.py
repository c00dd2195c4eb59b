"""The report on each shard of a queue: backlog, age, and how long messages took."""

from __future__ import annotations

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession, functions

from shardq.spark.jobs.job import QueueLocation

__all__ = ["Percentiles", "ShardReport", "Survey", "survey"]

_POINTS = (0.5, 0.95, 0.99)


class Percentiles(msgspec.Struct, frozen=True):
    """Seconds."""

    median: float
    p95: float
    p99: float
    most: float


class ShardReport(msgspec.Struct, frozen=True):
    """One shard."""

    shard: str
    time_shard: int
    number: int
    ready: int
    delayed: int
    in_flight: int
    processed: int
    redelivered: int  # of those that wait: not for the first time
    age: Percentiles | None  # of those that wait, since they were sent
    latency: Percentiles | None  # of those in the history: from due to acked

    @property
    def backlog(self) -> int:
        """Messages that are not acked."""
        return self.ready + self.delayed + self.in_flight


class Survey(msgspec.Struct, frozen=True):
    """A queue at one moment."""

    queue: str
    taken_at: str
    shards: tuple[ShardReport, ...]

    def total(self, column: str) -> int:
        """Add up a column."""
        return sum(getattr(shard, column) for shard in self.shards)

    @property
    def skew(self) -> float | None:
        """The backlog of the fullest concurrency shard, by the mean; None: there is no backlog."""
        loads = self.by_number("backlog")
        mean = sum(loads.values()) / len(loads) if loads else 0
        return max(loads.values()) / mean if mean else None

    def by_number(self, column: str) -> dict[int, int]:
        """Add up a column for each concurrency shard."""
        loads: dict[int, int] = {}
        for shard in self.shards:
            loads[shard.number] = loads.get(shard.number, 0) + getattr(shard, column)
        return dict(sorted(loads.items()))


def survey(spark: SparkSession, place: QueueLocation, *, taken_at: str) -> Survey:
    """Survey all shards of a queue; the work is done by the executors, shard by shard."""
    counts = place.read(spark, view="shards").drop("oldest", "age_seconds")
    waiting = place.read(spark, view="messages", includeBody="false")
    moment = functions.lit(taken_at).cast("timestamp")
    ages = _spread(waiting.withColumn("seconds", _seconds("enqueued_at", moment)), "age")
    again = waiting.groupBy("shard").agg(
        functions.sum((functions.col("deliveries") > 1).cast("int")).alias("redelivered")
    )
    done = place.read(spark, view="history", includeBody="false")
    latencies = _spread(done.withColumn("seconds", _seconds("enqueued_at", functions.col("due"))), "latency")
    rows = counts.join(ages, "shard", "left").join(latencies, "shard", "left").join(again, "shard", "left")
    found = [_report(row.asDict(recursive=True)) for row in rows.collect()]
    return Survey(
        place.queue, taken_at, tuple(sorted(found, key=lambda shard: (shard.time_shard, shard.number)))
    )


def _seconds(begin: str, end: Column) -> Column:
    return functions.greatest(functions.lit(0.0), end.cast("double") - functions.col(begin).cast("double"))


def _spread(rows: DataFrame, name: str) -> DataFrame:
    points = functions.percentile_approx("seconds", list(_POINTS), 10_000)
    # Four numbers, see Percentiles.
    return rows.groupBy("shard").agg(
        functions.concat(points, functions.array(functions.max("seconds"))).alias(name)
    )


def _report(row: dict[str, object]) -> ShardReport:
    for name in ("age", "latency"):
        row[name] = row[name] and dict(zip(Percentiles.__struct_fields__, row[name], strict=True))  # type: ignore[call-overload]
    row["redelivered"] = row["redelivered"] or 0
    return msgspec.convert(row, ShardReport)
