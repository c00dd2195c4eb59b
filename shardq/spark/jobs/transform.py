"""Transform: messages from queue to queue, changed on the way."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
from pyspark.sql import DataFrame, SparkSession

from shardq.spark.jobs.place import Place
from shardq.spark.jobs.progress import Say, follow

__all__ = ["Transform", "Transformed", "transform"]

Transform = Callable[[DataFrame], DataFrame]


class Transformed(msgspec.Struct, frozen=True):
    """What a transform did."""

    messages: int  # that were read by this call
    source: str
    target: str


def transform(
    spark: SparkSession,
    source: Place,
    target: Place,
    change: Transform,
    *,
    checkpoint: str,
    continuous: bool = False,
    stream_options: Mapping[str, str] | None = None,
    send_options: Mapping[str, str] | None = None,
    say: Say = lambda _: None,
) -> Transformed:
    """Receive everything that is due by now (``continuous``: for ever), change it, and send the result.

    What is received is acked once the result is sent. The checkpoint makes a repetition go on where it was, and sends
    nothing twice.
    """
    rows = change(source.stream(spark, **{"includeHeaders": "packed"} | dict(stream_options or {})))
    writer = rows.writeStream.format("shardq").options(**target.options(**(send_options or {})))
    writer = writer.option("checkpointLocation", checkpoint)
    query = (writer if continuous else writer.trigger(availableNow=True)).start()
    return Transformed(follow(query, say), source.queue, target.queue)
