"""A client that sends by jobs of Spark: the ids of rows may repeat, and each task fails at first and is tried again."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from .assignment import ASSIGNMENT, Assignment
from .history import Phase
from .role import Role
from .stage import Stage

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrameWriter, SparkSession

__all__ = ["Sparking", "start_spark"]

SHARE = 40  # one row for so many messages of the others
JOB, TASKS = 100, 2  # rows of a job, and into how many tasks they are cut
BUNDLE = 10  # messages: a task has several requests, between which it can fail
SAME = 3  # different ids in a job whose ids repeat: so few that rows of one id are in several bundles


def start_spark(stage: Stage, messages: int, seconds: float) -> None:
    """Start the client, where there is Java and PySpark."""
    if shutil.which("java") and find_spec("pyspark"):
        rows = max(2 * JOB, messages // SHARE)
        stage.start("spark", "j1", messages=rows, rate=rows / seconds)


class Sparking(Role):
    """Sends rows by one job after the other. In every second one their ids are different, and named by ``idColumn``.

    In the others, the column is called ``id`` by chance. A job that fails is not repeated: what it has stored stays.
    """

    def run(self) -> None:
        number, last = self.assignment.first, self.assignment.first + self.assignment.messages
        with _session(self.assignment) as spark:
            self._job(spark, 0, 0).save()  # the first one takes seconds, and raises what is wrong with any
            while number < last and not self.stopped.is_set():
                end = last if self.dial.hurry else min(last, number + JOB)
                self._send(self._job(spark, number, end), number, end)
                self.pause((end - number) / self.assignment.rate * self.dice.uniform(0.5, 1.5))
                number = end

    def _job(self, spark: SparkSession, first: int, end: int) -> DataFrameWriter:
        """A job that sends the rows with these numbers."""
        has_ids = first // JOB % 2 == 1
        identity = "id" if has_ids else f"id % {SAME}"
        rows = spark.range(first, end, 1, TASKS)
        rows = rows.selectExpr(f"cast({identity} as string) as id", f"concat('{self._place}-', id) as body")
        job = rows.mapInArrow(_shuffled, rows.schema).write.format("shardq").mode("append")
        job = job.option("url", self.assignment.url).option("queue", self.assignment.queue)
        job = job.option("bundleMessages", BUNDLE)
        return job.option("idColumn", "id") if has_ids else job

    def _send(self, job: DataFrameWriter, first: int, end: int) -> None:
        bodies = [f"{self._place}-{number}" for number in range(first, end)]
        self.record.invoke("send", bodies)
        try:
            job.save()
        except Exception as error:  # of Spark, whatever the cause
            self.record.outcome("send", Phase.UNKNOWN, bodies, note=error)
        else:
            self.record.outcome("send", Phase.OK, bodies)

    @property
    def _place(self) -> str:
        return self.assignment.name.partition(".")[0]


@contextmanager
def _session(told: Assignment) -> Iterator[SparkSession]:
    """Spark with one core and a small JVM, whose Python processes are surrounded as this one is."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 -- only this client needs it

    from shardq.spark.source import ShardqDataSource  # noqa: PLC0415

    os.environ |= {ASSIGNMENT: msgspec.json.encode(told).decode(), "PYSPARK_PYTHON": sys.executable}
    folder = Path(told.log).with_suffix(".spark")
    settings: dict[str, bool | float | int | str | None] = {
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(folder),
        "spark.python.daemon.module": "tools.faults.spark_daemon",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    spark = SparkSession.builder.master("local[1,4]").config(map=settings).getOrCreate()
    try:
        spark.sparkContext.setLogLevel("OFF")
        spark.dataSource.register(ShardqDataSource)
        yield spark
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _shuffled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of a task in an order that every attempt has of its own, as after a shuffle."""
    import numpy as np  # noqa: PLC0415
    import pyarrow as pa  # noqa: PLC0415

    rows = pa.Table.from_batches(list(batches))
    yield from rows.take(np.random.default_rng().permutation(rows.num_rows)).to_batches()
