"""Replay: copies of what was acked in a period, to the same queue or another one of any store."""

from __future__ import annotations

import secrets

import msgspec
from pyspark.sql import SparkSession

import shardq
from shardq.errors import InvalidSetting
from shardq.spark.jobs.place import REPEATABLE_TASKS, Place

__all__ = ["Replayed", "replay"]


class Replayed(msgspec.Struct, frozen=True):
    """What a replay did."""

    messages: int
    target: str
    run_id: str


def replay(
    spark: SparkSession,
    source: Place,
    target: Place,
    *,
    since: str | None = None,
    until: str | None = None,
    run_id: str | None = None,
) -> Replayed:
    """Send copies of what was acked at or after ``since`` and before ``until`` (ISO 8601; default: all, up to now).

    Bodies, headers and priorities are kept. Run again under the same ``run_id`` and with the same period it
    completes what was interrupted.
    """
    with shardq.connect(source.url) as client:
        if client.queue(source.queue).settings.history_retention == 0:
            raise InvalidSetting(
                f"queue {source.queue!r} keeps no history: `shardq alter {source.queue} --history-retention 7d`"
            )
        end = until or client.now().isoformat()
    run = run_id or secrets.token_hex(8)
    rows = source.read(spark, view="history", since=since, until=end, includeHeaders="packed")
    messages = rows.select("id", "body", "headers", "priority").repartition(REPEATABLE_TASKS, "id").cache()
    try:
        count = messages.count()
        target.writer(messages, runId=run).save()
    finally:
        messages.unpersist()
    return Replayed(count, target.queue, run)
