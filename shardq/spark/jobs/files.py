"""Jobs between files and a queue: load and drain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from pyspark.sql import DataFrame, Observation, SparkSession, functions

import shardq
from shardq.errors import InvalidSetting
from shardq.spark.bodies import CORRUPT
from shardq.spark.jobs.job import REPEATABLE_TASKS, QueueLocation, Say, follow, watch
from shardq.spark.options import RowOptions, check_reader, choose
from shardq.spark.rows import schema_of

__all__ = ["FORMATS", "drain", "load"]

FORMATS = ("parquet", "csv", "json", "text")
EXACT = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",  # an old moment elsewhere may have an offset with seconds, which would be cut off
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Options of ``to_json`` that keep nulls and microseconds, so that ``from_json`` gives the row that was loaded."""
BATCH_MESSAGES = 2_000_000  # each micro-batch costs about a second
PASSING = ("receipt", "state")
"""Columns that say nothing of a message once it is acked."""


class Loaded(msgspec.Struct, frozen=True):
    """The result of a load."""

    rows: int  # in the files
    queue: str


def load(
    spark: SparkSession,
    target: QueueLocation,
    path: str,
    *,
    format: str = "parquet",  # noqa: A002 - as Spark calls it
    body: str | None = None,
    read_options: Mapping[str, str] | None = None,
    send_options: Mapping[str, str] | None = None,
    say: Say = lambda _: None,
) -> Loaded:
    """Send every row of the files as a message.

    ``body`` is an SQL expression for the body. Without it the body is the whole row as JSON, from which ``from_json``
    with the files' schema makes the same row again. Rows that have a column ``body`` are sent as they are. Run again
    under the same ``runId`` it completes an interrupted load. For that rows are spread by their bodies, so their order
    is lost, and InvalidSetting is raised for ``inputOrder=stable``.
    """
    has_run = bool(choose(send_options or {}, "runId", ""))
    if has_run and choose(send_options or {}, "inputOrder", "any") == "stable":
        raise InvalidSetting(
            "options runId and inputOrder=stable cannot be used together in a load, which spreads rows by their bodies "
            "so that it can be repeated: leave one of them out, or send the rows with a job of your own"
        )
    rows = spark.read.format(format).options(**(read_options or {})).load(path)
    messages = _messages(rows, body)
    if has_run:
        messages = messages.repartition(REPEATABLE_TASKS, "body")
    sent = Observation()
    messages = messages.observe(sent, functions.count("*").alias("rows"))
    with shardq.connect(target.url) as client:
        queue = client.queue(target.queue)

        def describe() -> str:
            return f"{queue.counts().ready:,} messages are ready in {queue.name}"

        with watch(say, describe):
            target.writer(messages, **(send_options or {})).save()
    return Loaded(sent.get["rows"], target.queue)


def _messages(rows: DataFrame, body: str | None) -> DataFrame:
    if body is not None:
        return rows.selectExpr(f"{body} AS body")
    if "body" in rows.columns:
        return rows
    return rows.select(functions.to_json(functions.struct("*"), EXACT).alias("body"))


class Drained(msgspec.Struct, frozen=True):
    """The result of a drain."""

    messages: int  # of this call
    path: str


def drain(
    spark: SparkSession,
    source: QueueLocation,
    path: str,
    *,
    checkpoint: str | None = None,
    select: Sequence[str] = (),
    stream_options: Mapping[str, str] | None = None,
    say: Say = lambda _: None,
) -> Drained:
    """Write everything that is due by now to Parquet files, and ack it once it is there.

    Each message is in the files once. Interrupted and called again with the same path and checkpoint (by default
    ``<path>/_checkpoint``), it continues where it was, as long as the leases held. ``select`` are SQL expressions over
    the columns of a message. A large body is in no row, so nothing would be left of it: it fails the batch. Raises
    InvalidSetting where ``columns`` leave out the one that distinguishes it from a body that cannot be read.
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
    """Return the rows, of which a read of the body of a large message fails.

    Raises InvalidSetting where none is distinguished.
    """
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
    """Return the columns but for those that the files are not to have."""
    return [name for name in schema_of(chosen).names if name not in PASSING]
