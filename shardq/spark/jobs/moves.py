"""Jobs from queue to queue: migrate, replay and transform."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import shardq
from shardq.base.shard import Shard
from shardq.core.context.queue_context import QueueContext
from shardq.errors import InvalidSetting
from shardq.spark.connection import context_of, task_context
from shardq.spark.jobs.copies import Copied, begin_copy, copy_shard, hash_of_shard, resume_copy
from shardq.spark.jobs.job import REPEATABLE_TASKS, QueueLocation, Say, follow, watch
from shardq.spark.options import QueueOptions

__all__ = ["Transform", "migrate", "replay", "transform"]

_RESULT = "messages bigint, hash bigint"
_ARROW_RESULT = pa.schema([("messages", pa.int64()), ("hash", pa.int64())])


class Migrated(msgspec.Struct, frozen=True):
    """The messages that were found in both queues."""

    messages: int
    source_hash: str
    target_messages: int
    target_hash: str

    @property
    def equal(self) -> bool:
        """True when the target holds the same messages as the source."""
        return (self.messages, self.source_hash) == (self.target_messages, self.target_hash)


def migrate(
    spark: SparkSession,
    source: QueueLocation,
    target: QueueLocation,
    *,
    resume: bool = False,
    say: Say = lambda _: None,
) -> Migrated:
    """Copy every message that is stored in the source, also delayed and in flight, and compare both queues.

    The target is created with the source's settings where it is missing. It has to be empty, unless ``resume``
    continues a migration that was interrupted within 7 days: messages that are there already are not stored twice.
    Pause the source first: neither queue may be used meanwhile. Where a consumer received from the source all the
    same, ReplayConflict is raised. The source is left as it is, without its history.
    """
    if source == target:
        raise InvalidSetting(f"queue {source.queue!r} is source and target: give two queues")
    with shardq.connect(source.url) as client, shardq.connect(target.url) as other:
        found = client.queue(source.queue)
        settings = msgspec.structs.asdict(found.settings) | {"delivery_paused": False, "sends_paused": False}
        made = other.create_queue(target.queue, exist_ok=True, **settings)
        if not resume and made.counts() != shardq.QueueCounts(0, 0, 0, made.counts().processed, None):
            raise InvalidSetting(
                f"queue {target.queue!r} holds messages already: migrate to an empty one, or continue with resume"
            )

        def describe() -> str:
            return f"{made.counts().ready:,} messages are ready in {target.queue}"

        context = context_of(QueueOptions(url=target.url, queue=target.queue))
        run = resume_copy(context) if resume else begin_copy(context)
        with watch(say, describe):
            copied = _over_shards(spark, source, _copier(target, run))
        say("comparing both queues")
        stored = _over_shards(spark, target, _hasher)
    return Migrated(copied.messages, f"{copied.hash:016x}", stored.messages, f"{stored.hash:016x}")


def _copier(target: QueueLocation, run: str) -> Callable[[QueueContext, Shard], Copied]:
    def copy(source: QueueContext, shard: Shard) -> Copied:
        with task_context(QueueOptions(url=target.url, queue=target.queue)) as context:
            return copy_shard(source, shard, context, run)

    return copy


def _hasher(context: QueueContext, shard: Shard) -> Copied:
    return hash_of_shard(context, shard)


def _over_shards(
    spark: SparkSession, place: QueueLocation, work: Callable[[QueueContext, Shard], Copied]
) -> Copied:
    """Do something with each shard of a queue, on the executors, and add up."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with task_context(QueueOptions(url=place.url, queue=place.queue)) as context:
            for batch in batches:
                for shard in batch.to_pylist():
                    done = work(context, Shard(place.queue, shard["time_shard"], shard["number"]))
                    yield pa.RecordBatch.from_pydict(
                        {"messages": [done.messages], "hash": [done.hash]}, schema=_ARROW_RESULT
                    )

    shards = place.read(spark, view="shards").select("time_shard", "number")
    rows = shards.mapInArrow(run, _RESULT).collect()
    return sum((Copied(row.messages, row.hash) for row in rows), Copied())


class Replayed(msgspec.Struct, frozen=True):
    """The result of a replay."""

    messages: int
    target: str
    run_id: str


def replay(
    spark: SparkSession,
    source: QueueLocation,
    target: QueueLocation,
    *,
    since: str | None = None,
    until: str | None = None,
    run_id: str | None = None,
) -> Replayed:
    """Send copies of messages that were acked at or after ``since`` and before ``until`` (ISO 8601.

    Default: all, up to now). Bodies, headers and priorities are kept. Run again under the same ``run_id`` and with the
    same period it completes an interrupted replay.
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


Transform = Callable[[DataFrame], DataFrame]


class Transformed(msgspec.Struct, frozen=True):
    """The result of a transform."""

    messages: int  # that were read by this call
    source: str
    target: str


def transform(
    spark: SparkSession,
    source: QueueLocation,
    target: QueueLocation,
    change: Transform,
    *,
    checkpoint: str,
    continuous: bool = False,
    stream_options: Mapping[str, str] | None = None,
    send_options: Mapping[str, str] | None = None,
    say: Say = lambda _: None,
) -> Transformed:
    """Receive everything that is due by now (``continuous``: for ever), change it, and send the result.

    Received messages are acked once the result is sent. The checkpoint makes a repetition continue where it was, and
    sends nothing twice.
    """
    rows = change(source.stream(spark, **{"includeHeaders": "packed"} | dict(stream_options or {})))
    writer = rows.writeStream.format("shardq").options(**target.options(**(send_options or {})))
    writer = writer.option("checkpointLocation", checkpoint)
    query = (writer if continuous else writer.trigger(availableNow=True)).start()
    return Transformed(follow(query, say), source.queue, target.queue)
