"""Rows per second through the sink and the claim stream, beside plain Python processes on the same store.

    python tools/spark/throughput.py [--url URL] [--rows N] [--size BYTES]
    python tools/servers/cassandra.py run -- python tools/spark/throughput.py --url {url}

Steps: the pipe without storage (rows counted; rows sorted and cut into parts; rows from nowhere to Parquet, as a drain
writes them), the sink, the sink when every row has a key of its own and `shardBy=key`, two plain producers,
`foreachPartition` with one insert for each row (of a twentieth of the rows), the drain to Parquet, two plain consumers.
One JSON object for each step on stdout and one with the ratios; each step is run once, after a warm-up.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pyarrow as pa
from local_session import local_session
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType
from row_inserts import insert_rows
from trial_options import trial_options

import shardq
from shardq.spark.columns import Columns
from shardq.spark.jobs.files import BATCH_MESSAGES, drain
from shardq.spark.jobs.job import QueueLocation
from shardq.spark.options import SendOptions
from shardq.spark.parts import PartCutter

PROCESSES = 2
TASK_ROWS = 25_000
ARROW_ROWS = 10_000


class NowhereWriter(DataSourceArrowWriter):
    """Does what the sink does, but stores nothing."""

    def __init__(self, schema: StructType, *, cut: bool, order: Literal["any", "stable"]) -> None:
        self.options = SendOptions(url="sqlite:///nowhere.db", queue="q", input_order=order)
        self.columns, self.cut = Columns.of(schema, self.options), cut

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        if self.cut:
            for _ in PartCutter(iterator, self.columns, self.options, partition=0, start=0):
                pass
        else:
            sum(batch.num_rows for batch in iterator)
        return WriterCommitMessage()


class NowhereReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Gives rows as a drain gets them, in tasks of `TASK_ROWS`, and reads nothing."""

    def __init__(self, rows: int, size: int) -> None:
        self.rows, self.size = rows, size

    def initialOffset(self) -> dict[str, int]:
        return {"row": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        return {"row": min(start["row"] + BATCH_MESSAGES, self.rows)}

    def prepareForTriggerAvailableNow(self) -> None: ...

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [
            InputPartition((first, min(first + TASK_ROWS, end["row"])))
            for first in range(start["row"], end["row"], TASK_ROWS)
        ]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        assert partition is not None
        first, last = partition.value
        for start in range(first, last, ARROW_ROWS):
            ids = [f"{row:040d}" for row in range(start, min(start + ARROW_ROWS, last))]
            yield pa.record_batch({"id": ids, "body": [each.encode().ljust(self.size) for each in ids]})


class Nowhere(DataSource):
    @classmethod
    def name(cls) -> str:
        return "nowhere"

    def schema(self) -> str:
        return "id string, body binary"

    def streamReader(self, schema: StructType) -> NowhereReader:
        return NowhereReader(int(self.options["rows"]), int(self.options["size"]))

    def writer(self, schema: StructType, _overwrite: bool) -> NowhereWriter:
        order: Literal["any", "stable"] = "stable" if self.options.get("order") == "stable" else "any"
        return NowhereWriter(schema, cut=self.options.get("cut") == "true", order=order)


def main() -> None:
    options = trial_options(__doc__)
    spark = _session()
    with tempfile.TemporaryDirectory(prefix="shardq-spark-") as folder:
        url = options.url or f"sqlite:///{folder}/bench.db"
        rows = _rows(spark, options, Path(folder))
        _warm_up(spark, rows, url, Path(folder))
        _steps(spark, rows, url, Path(folder), options)
    spark.stop()


def _steps(spark: SparkSession, rows: DataFrame, url: str, folder: Path, options: argparse.Namespace) -> None:
    count, fewer = options.rows, options.rows // 20
    for name, chosen in (
        ("count", {}),
        ("stable", {"cut": "true", "order": "stable"}),
        ("any", {"cut": "true"}),
    ):
        _measure(f"pipe, {name}", count, rows.write.format("nowhere").options(**chosen).mode("append").save)
    pipe = _measure(
        "pipe, drain", count, lambda: _to_parquet(spark, count, options.size, str(folder / "pipe"))
    )
    with shardq.connect(url) as client:
        sinks = {}
        for order in ("stable", "any"):
            place = _new(client, url)
            sink = place.writer(rows, inputOrder=order)
            sinks[order] = _measure(f"sink, inputOrder={order}", count, sink.save)
            _check(client, place, count)
        drained = place
        place = _new(client, url)
        keyed = place.writer(rows.withColumn("key", functions.xxhash64("body")), shardBy="key")
        keys = _measure("sink, a key for each row", count, keyed.save)
        _check(client, place, count)
        client.delete_queue(place.queue)
        place = _new(client, url)
        producers = _measure(
            "plain producers", count, lambda: _processes(produce, place, count, options.size)
        )
        _check(client, place, count)
        some = rows.limit(fewer).repartition(PROCESSES).cache()
        assert some.count() == fewer
        inserts = _measure("an insert for each row", fewer, lambda: insert_rows(some, url))
        drain_rate = _measure("drain to Parquet", count, lambda: drain(spark, drained, str(folder / "out")))
        _check(client, drained, 0)
        consumers = _measure(
            "plain consumers", count, lambda: _processes(consume, place, count, options.size)
        )
        _check(client, place, 0)
    ratios = {
        f"sink, inputOrder={order} / plain producers": rate / producers for order, rate in sinks.items()
    }
    ratios |= {f"sink, inputOrder={order} / inserts": rate / inserts for order, rate in sinks.items()}
    ratios |= {"sink, inputOrder=any / stable": sinks["any"] / sinks["stable"]}
    ratios |= {"sink, a key for each row / inputOrder=any": keys / sinks["any"]}
    ratios |= {"drain / plain consumers": drain_rate / consumers, "drain / pipe": drain_rate / pipe}
    print(json.dumps({name: round(ratio, 2) for name, ratio in ratios.items()}))


def _to_parquet(spark: SparkSession, count: int, size: int, path: str) -> None:
    """What a drain does with the rows."""
    rows = spark.readStream.format("nowhere").options(rows=count, size=size).load()
    query = (
        rows.writeStream.format("parquet")
        .option("path", path)
        .option("checkpointLocation", f"{path}/_checkpoint")
    )
    query.trigger(availableNow=True).start().awaitTermination()


def produce(place: QueueLocation, count: int, size: int) -> None:
    body = b"x" * size
    with shardq.connect(place.url) as client, client.queue(place.queue).producer() as producer:
        producer.send_many(body for _ in range(count))


def consume(place: QueueLocation, _count: int, _size: int) -> None:
    with shardq.connect(place.url) as client, client.queue(place.queue).consumer() as consumer:
        for batch in consumer.batches(1_000, wait=1.0):
            batch.ack()


def _processes(
    work: Callable[[QueueLocation, int, int], None], place: QueueLocation, count: int, size: int
) -> None:
    context = multiprocessing.get_context("spawn")
    share = count // PROCESSES
    running = [context.Process(target=work, args=(place, share, size)) for _ in range(PROCESSES)]
    for process in running:
        process.start()
    for process in running:
        process.join()


def _measure(step: str, count: int, work: Callable[[], object]) -> float:
    """Rows per second."""
    begun = time.monotonic()
    work()
    seconds = time.monotonic() - begun
    figures = {
        "step": step,
        "rows": count,
        "seconds": round(seconds, 2),
        "per_second": round(count / seconds),
    }
    print(json.dumps(figures), flush=True)
    return count / seconds


def _check(client: shardq.Client, place: QueueLocation, count: int) -> None:
    counts = client.queue(place.queue).counts()
    assert (counts.ready, counts.in_flight) == (count, 0), counts


def _new(client: shardq.Client, url: str) -> QueueLocation:
    return QueueLocation(url, client.create_queue(f"b{uuid.uuid4().hex[:8]}", shards=8, time_shards=4).name)


def _rows(spark: SparkSession, options: argparse.Namespace, folder: Path) -> DataFrame:
    body = f"cast(rpad(cast(id as string), {options.size}, sha2(cast(id as string), 512)) as binary) as body"
    path = str(folder / "rows")
    spark.range(0, options.rows, 1, PROCESSES).selectExpr(body).write.parquet(path)
    rows = spark.read.parquet(path).cache()
    assert rows.count() == options.rows
    return rows


def _warm_up(spark: SparkSession, rows: DataFrame, url: str, folder: Path) -> None:
    some = rows.limit(50_000).repartition(PROCESSES)
    some.write.format("nowhere").options(cut="true").mode("append").save()
    _to_parquet(spark, 50_000, 512, str(folder / "pipe-warm-up"))
    with shardq.connect(url) as client:
        place = _new(client, url)
        place.writer(some).save()
        drain(spark, place, str(folder / "warm-up"))
        client.delete_queue(place.queue)


def _session() -> SparkSession:
    settings = {"driver_memory": "3g", "sql_files_maxPartitionBytes": "4g"}
    spark = local_session("throughput", f"local[{PROCESSES},3]", **settings)
    spark.dataSource.register(Nowhere)
    return spark


if __name__ == "__main__":
    main()
