"""The common parts of jobs: their session, a queue as they name it, progress and failures."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from shardq import errors
from shardq.base.waits import BackgroundThread, Flag
from shardq.errors import ShardqError
from shardq.storage.opening import HasUrl

__all__ = [
    "REPEATABLE_TASKS",
    "JobFailed",
    "QueueLocation",
    "Say",
    "explained",
    "follow",
    "spark_session",
    "watch",
]

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
}


@contextmanager
def spark_session(master: str | None = None) -> Iterator[SparkSession]:
    """Use the active session, as under spark-submit; else one on this computer, which ends with the block.

    Such a session has no log of Spark: errors are raised, see :func:`explained`.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        with explained():
            yield running
        return
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("shardq")
    if master is not None or "SPARK_ENV_LOADED" not in os.environ:
        builder = builder.master(master or "local[*]")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    try:
        with explained():
            yield session
    finally:
        session.stop()


REPEATABLE_TASKS = 32
"""The number of tasks over which rows are spread by their value, where a job may be run again with the rows cut in
another way."""


class QueueLocation(HasUrl, frozen=True):
    """A queue by the URL of its store and its name."""

    url: str
    queue: str

    def options(self, **chosen: object) -> dict[str, str]:
        """Return options of the data source; those that are None are left out."""
        named = {name: str(value) for name, value in chosen.items() if value is not None}
        return {"url": self.url, "queue": self.queue} | named

    def read(self, spark: SparkSession, **chosen: object) -> DataFrame:
        """Read the queue as a table."""
        return spark.read.format("shardq").options(**self.options(**chosen)).load()

    def stream(self, spark: SparkSession, **chosen: object) -> DataFrame:
        """Read the queue as a stream."""
        return spark.readStream.format("shardq").options(**self.options(**chosen)).load()

    def writer(self, rows: DataFrame, **chosen: object) -> DataFrameWriter:
        """Return a writer that sends rows to the queue."""
        return rows.write.format("shardq").options(**self.options(**chosen)).mode("append")


Say = Callable[[str], None]

INTERVAL = 2.0


@contextmanager
def watch(say: Say, look: Callable[[], str]) -> Iterator[None]:
    """Say every two seconds how far it is, while the block runs."""
    stopped, thread = Flag(), BackgroundThread("shardq-progress")

    def run() -> None:
        begun = time.monotonic()
        while not stopped.wait(INTERVAL):
            say(f"{time.monotonic() - begun:.0f} s: {look()}")

    thread.run(run)
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def follow(query: StreamingQuery, say: Say) -> int:
    """Wait for the end of a stream, saying how far it is; returns how many rows it read."""
    rows: dict[int, int] = {}
    try:
        while not query.awaitTermination(1):
            _take_note(query, rows, say)
    finally:
        query.stop()
    _take_note(query, rows, say)
    return sum(rows.values())


def _take_note(query: StreamingQuery, rows: dict[int, int], say: Say) -> None:
    """Note the progress in time: Spark keeps that of the last hundred batches."""
    before = sum(rows.values())
    for progress in query.recentProgress:
        rows[progress.batchId] = max(rows.get(progress.batchId, 0), progress.numInputRows)
    if sum(rows.values()) != before:
        say(f"{sum(rows.values()):,} messages")


_OURS = re.compile(r"shardq\.errors\.(\w+): ([^\n]+)")


class JobFailed(ShardqError):
    """Raised when Spark ends a job for its own reasons."""


@contextmanager
def explained() -> Iterator[None]:
    """Raise shardq's own error where a task or Spark's planning raised one, else JobFailed with Spark's first line."""
    try:
        yield
    except PySparkException as error:
        found = _OURS.search(str(error))
        if found is not None:
            raise getattr(errors, found[1], JobFailed)(found[2].strip()) from error
        raise JobFailed(str(error).strip().partition("\n")[0]) from error
