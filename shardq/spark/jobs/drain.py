"""Drain: a queue into Parquet files, acked batch by batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from pyspark.sql import DataFrame, SparkSession, functions

from shardq.errors import InvalidSetting
from shardq.spark.bodies import CORRUPT
from shardq.spark.jobs.place import Place
from shardq.spark.jobs.progress import Say, follow
from shardq.spark.options import RowOptions, check_reader
from shardq.spark.row_schema import schema_of

__all__ = ["Drained", "drain"]

BATCH_MESSAGES = 2_000_000  # a micro-batch has a cost of its own, about a second


PASSING = ("receipt", "state")
"""Columns that say nothing of a message once it is acked."""


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
    expressions over the columns of a message. A large body is in no row, so nothing would be left of it: it fails the
    batch. Raises InvalidSetting where ``columns`` leave out what tells one from a body that cannot be read.
    """
    given: dict[str, object] = {"maxMessagesPerTrigger": BATCH_MESSAGES, **(stream_options or {})}
    chosen = check_reader(source.options(**given))
    if not select:
        given = {"columns": ",".join(_lasting(chosen))} | given
    rows = _with_bodies(source.stream(spark, **given), chosen)
    rows = rows.selectExpr(*select) if select else rows.drop(*PASSING)
    query = (
        rows.writeStream.format("parquet")
        .option("path", path)
        .option("checkpointLocation", checkpoint or f"{path}/_checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    return Drained(follow(query, say), path)


def _with_bodies(rows: DataFrame, chosen: RowOptions) -> DataFrame:
    """The rows, where those who read the body of a large message fail. Raises InvalidSetting where none is told."""
    if "body" not in rows.columns:
        return rows
    present = functions.col("body").isNotNull()
    if CORRUPT in rows.columns:
        present |= functions.col(CORRUPT).isNotNull()
    elif chosen.body_format != "binary" and chosen.body_mode != "failfast":
        raise InvalidSetting(
            f"option columns of a drain: without {CORRUPT!r} a large body is not told from one that cannot be read: "
            "add that column, which `select` may leave out, or set bodyMode=failfast"
        )
    which = (
        functions.concat(functions.lit("message "), "id")
        if "id" in rows.columns
        else functions.lit("a message")
    )
    why = functions.lit(" has a large body, which is in no row: receive it, or remove it, and drain again")
    missing = functions.raise_error(functions.concat(which, why))
    return rows.withColumn("body", functions.when(present, functions.col("body")).otherwise(missing))


def _lasting(chosen: RowOptions) -> list[str]:
    """The columns but for those that the files are not to have."""
    return [name for name in schema_of(chosen).names if name not in PASSING]
