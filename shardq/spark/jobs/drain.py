"""Drain: a queue into Parquet files, acked batch by batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from pyspark.sql import SparkSession

from shardq.spark.jobs.place import Place
from shardq.spark.jobs.progress import Say, follow

__all__ = ["Drained", "drain"]

BATCH_MESSAGES = 2_000_000  # a micro-batch has a cost of its own, about a second


class Drained(msgspec.Struct, frozen=True):
    """What a drain did."""

    messages: int  # of this call
    path: str


def drain(
    spark: SparkSession,
    source: Place,
    path: str,
    *,
    checkpoint: str | None = None,
    select: Sequence[str] = (),
    stream_options: Mapping[str, str] | None = None,
    say: Say = lambda _: None,
) -> Drained:
    """Write everything that is due by now to Parquet files, and ack it once it is there.

    Each message is in the files once: interrupted and called again with the same path and checkpoint (by default
    ``<path>/_checkpoint``), it goes on where it was, as long as the leases held. ``select`` are SQL
    expressions over the columns of a message.
    """
    rows = source.stream(spark, **{"maxMessagesPerTrigger": BATCH_MESSAGES} | dict(stream_options or {}))
    rows = rows.selectExpr(*select) if select else rows.drop("receipt", "state")
    query = (
        rows.writeStream.format("parquet")
        .option("path", path)
        .option("checkpointLocation", checkpoint or f"{path}/_checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    return Drained(follow(query, say), path)
