"""Migrate: everything that waits in a queue to another queue of any store, with count and hash checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

import shardq
from shardq.base.shard import Shard
from shardq.core.context.queue_context import QueueContext
from shardq.errors import InvalidSetting
from shardq.spark.connection import context_of, task_context
from shardq.spark.jobs.copies import Copied, begin_copy, copy_shard, hash_of_shard, resume_copy
from shardq.spark.jobs.place import Place
from shardq.spark.jobs.progress import Say, watch
from shardq.spark.options import QueueOptions

__all__ = ["Migrated", "migrate"]

_RESULT = "messages bigint, hash bigint"
_ARROW_RESULT = pa.schema([("messages", pa.int64()), ("hash", pa.int64())])


class Migrated(msgspec.Struct, frozen=True):
    """What was found in both queues."""

    messages: int
    source_hash: str
    target_messages: int
    target_hash: str

    @property
    def equal(self) -> bool:
        """True when the target holds the same messages as the source."""
        return (self.messages, self.source_hash) == (self.target_messages, self.target_hash)


def migrate(
    spark: SparkSession, source: Place, target: Place, *, resume: bool = False, say: Say = lambda _: None
) -> Migrated:
    """Copy every message that is stored in the source, also delayed and in flight, and compare both queues.

    The target is created with the source's settings where it is missing. It has to be empty, unless ``resume`` goes on
    with a migration that was interrupted within 7 days: what is there already is not stored twice. Nobody should use
    either queue meanwhile: pause the source first. Where somebody received from the source all the same, ReplayConflict
    is raised. The source is left as it is, without its history.
    """
    if source == target:
        raise InvalidSetting(f"queue {source.queue!r} is source and target: give two queues")
    with shardq.connect(source.url) as client, shardq.connect(target.url) as other:
        found = client.queue(source.queue)
        settings = msgspec.structs.asdict(found.settings) | {"delivery_paused": False, "sends_paused": False}
        made = other.create_queue(target.queue, exist_ok=True, **settings)
        if not resume and made.counts() != shardq.QueueCounts(0, 0, 0, made.counts().processed, None):
            raise InvalidSetting(
                f"queue {target.queue!r} holds messages already: migrate to an empty one, or go on with resume"
            )

        def look() -> str:
            return f"{made.counts().ready:,} messages are ready in {target.queue}"

        context = context_of(QueueOptions(url=target.url, queue=target.queue))
        run = resume_copy(context) if resume else begin_copy(context)
        with watch(say, look):
            copied = _over_shards(spark, source, _copier(target, run))
        say("comparing both queues")
        stored = _over_shards(spark, target, _hasher)
    return Migrated(copied.messages, f"{copied.hash:016x}", stored.messages, f"{stored.hash:016x}")


def _copier(target: Place, run: str) -> Callable[[QueueContext, Shard], Copied]:
    def copy(source: QueueContext, shard: Shard) -> Copied:
        with task_context(QueueOptions(url=target.url, queue=target.queue)) as context:
            return copy_shard(source, shard, context, run)

    return copy


def _hasher(context: QueueContext, shard: Shard) -> Copied:
    return hash_of_shard(context, shard)


def _over_shards(spark: SparkSession, place: Place, work: Callable[[QueueContext, Shard], Copied]) -> Copied:
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
