"""What is tried in one place where Spark runs. Started by ``check_clusters.py``, a process for each place.

    python tools/spark/trials.py MASTER FOLDER TRIAL [NAME=VALUE ...]

Ends with 0 when every message was there once.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from process_tree import children_of, command_of
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

import shardq
from shardq.spark.source import ShardqDataSource

ROWS = 60_000
STALL_SECONDS = 20.0


class Trial:
    """A queue in a fresh file, and what is done with it."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.url = f"sqlite:///{folder}/queue.db"
        client = shardq.connect(self.url)
        self.queue = client.create_queue("trial", shards=4, time_shards=2)

    def rows(self, tasks: int = 4) -> DataFrame:
        return self.spark.range(0, ROWS, 1, tasks).selectExpr("cast(id as string) as body")

    def write(self, rows: DataFrame, **options: str) -> None:
        named = {"url": self.url, "queue": "trial"} | options
        rows.write.format("shardq").options(**named).mode("append").save()
        rest = self.spark.read.format("shardq").options(url=self.url, queue="trial").load()
        bodies = [int(bytes(row.body)) for row in rest.select("body").collect()]
        assert sorted(bodies) == list(range(ROWS)), (
            f"{len(bodies)} messages, {len(set(bodies))} different ones"
        )

    def drain(
        self, change: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]] | None = None
    ) -> None:
        named = {
            "url": self.url,
            "queue": "trial",
            "maxMessagesPerTrigger": "30000",
            "failOnLeaseLoss": "true",
        }
        rows = self.spark.readStream.format("shardq").options(**named).load().select("body", "deliveries")
        if change is not None:
            rows = rows.mapInArrow(change, rows.schema)
        writer = rows.writeStream.format("parquet").option("path", f"{self.folder}/out")
        query = (
            writer.option("checkpointLocation", f"{self.folder}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(900)
        found = self.spark.read.parquet(f"{self.folder}/out").collect()
        assert sorted(int(bytes(row.body)) for row in found) == list(range(ROWS))
        assert {row.deliveries for row in found} == {1}
        counts = self.queue.counts()
        assert (counts.ready, counts.in_flight) == (0, 0), counts


def round_trip(trial: Trial) -> None:
    """Write, look, and receive as a stream."""
    trial.write(trial.rows())
    trial.drain()


def killed_executors(trial: Trial) -> None:
    """An executor is killed while it writes, and another one while it reads."""
    with _killing(trial, lambda: trial.queue.counts().ready > 0):
        trial.write(trial.rows().repartition(4), throughputRowsPerSec="5000")
    with _killing(trial, lambda: trial.queue.counts().in_flight > 0):
        trial.drain(slowly)


def speculation(trial: Trial) -> None:
    """A task that stalls is run twice: both attempts write, then both attempts read."""
    rows = trial.rows(tasks=2)
    marks = trial.folder / "marks"
    marks.mkdir()
    trial.write(
        rows.mapInArrow(_stall(f"{marks}/write", 20_000), rows.schema),
        inputOrder="stable",
        concurrentWrites="1",
    )
    assert _twice(marks, "write"), "no task wrote twice"
    trial.drain(_stall(f"{marks}/read", 1))
    assert _twice(marks, "read"), "no task read twice"
    time.sleep(STALL_SECONDS)  # the attempts that stalled wake up, and find that nobody waits for them
    assert trial.queue.counts().ready == 0


def _stall(marks: str, rows: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Leave a mark after so many rows of a task; then its first attempt stalls, if it is the first task."""

    def change(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        assert task is not None
        passed = 0
        for batch in batches:
            yield batch
            passed += batch.num_rows
            if passed >= rows:
                Path(f"{marks}-{task.stageId()}-{task.partitionId()}-{task.attemptNumber()}").touch()
                if task.partitionId() == task.attemptNumber() == 0:
                    time.sleep(STALL_SECONDS)

    return change


def _twice(marks: Path, step: str) -> bool:
    tasks = [path.name.rpartition("-")[0] for path in marks.glob(f"{step}-*")]
    return len(tasks) > len(set(tasks))


def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        time.sleep(0.5)
        yield batch


@contextmanager
def _killing(trial: Trial, ready: Callable[[], bool]) -> Iterator[None]:
    """Kill an executor when it is time; an error when that never came."""
    killed, over = threading.Event(), threading.Event()

    def run() -> None:
        while not ready() and not over.wait(0.02):
            pass
        if not over.is_set():
            os.kill(_executors(trial.spark)[0], signal.SIGKILL)
            killed.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert killed.is_set(), "no executor was killed"


def _executors(spark: SparkSession) -> list[int]:
    """The executors of a local cluster: children of the driver's JVM."""
    assert spark._jvm is not None
    java = spark._jvm.java.lang.ProcessHandle.current().pid()
    return [child for child in children_of(java) if "CoarseGrainedExecutorBackend" in command_of(child)]


TRIALS = {trial.__name__: trial for trial in (round_trip, killed_executors, speculation)}


def main() -> None:
    master, folder, name, *settings = sys.argv[1:]
    builder = SparkSession.builder.appName(name)
    builder = builder.remote(master) if master.startswith("sc:") else builder.master(master)
    for setting in settings:
        builder = builder.config(*setting.split("=", 1))
    spark = builder.getOrCreate()
    spark.dataSource.register(ShardqDataSource)  # found by itself only where shardq is installed
    TRIALS[name](Trial(spark, Path(folder)))
    spark.stop()


if __name__ == "__main__":
    main()
