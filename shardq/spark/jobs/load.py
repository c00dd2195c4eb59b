"""Bulk load: files into a queue."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from pyspark.sql import DataFrame, Observation, SparkSession, functions

import shardq
from shardq.errors import InvalidSetting
from shardq.spark.jobs.place import REPEATABLE_TASKS, Place
from shardq.spark.jobs.progress import Say, watch
from shardq.spark.options import choose

__all__ = ["FORMATS", "Loaded", "load"]

FORMATS = ("parquet", "csv", "json", "text")
EXACT = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",  # an old moment elsewhere may have an offset with seconds, which would be cut off
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Options of ``to_json`` that keep nulls and microseconds, so that ``from_json`` gives the row that was loaded."""


class Loaded(msgspec.Struct, frozen=True):
    """What a load did."""

    rows: int  # in the files
    queue: str


def load(
    spark: SparkSession,
    target: Place,
    path: str,
    *,
    format: str = "parquet",  # noqa: A002 - as Spark calls it
    body: str | None = None,
    read_options: Mapping[str, str] | None = None,
    send_options: Mapping[str, str] | None = None,
    say: Say = lambda _: None,
) -> Loaded:
    """Send every row of the files as a message.

    ``body`` is an SQL expression for the body; without it the body is the whole row as JSON, from which ``from_json``
    with the files' schema makes the same row again, unless the rows have a column ``body``: then they are sent as
    they are. Run again under the same ``runId`` it completes what was interrupted; for that rows are spread by their
    bodies, so their order is lost, and InvalidSetting is raised for ``inputOrder=stable``.
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

        def look() -> str:
            return f"{queue.counts().ready:,} messages are ready in {queue.name}"

        with watch(say, look):
            target.writer(messages, **(send_options or {})).save()
    return Loaded(sent.get["rows"], target.queue)


def _messages(rows: DataFrame, body: str | None) -> DataFrame:
    if body is not None:
        return rows.selectExpr(f"{body} AS body")
    if "body" in rows.columns:
        return rows
    return rows.select(functions.to_json(functions.struct("*"), EXACT).alias("body"))
