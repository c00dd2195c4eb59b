"""One Spark for all tests, on two cores, in which a failed task is tried again; and a queue on any store.

Each test has a fresh SQLite file. Those that are marked with ``on_every_store`` run on each server, too.
"""

from __future__ import annotations

import gc
import os
import shutil
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import shardq
from tests.spark.every_store import SERVERS

pyspark = pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from pyspark import SparkConf, SparkContext  # noqa: E402
from pyspark.java_gateway import launch_gateway  # noqa: E402
from pyspark.sql import DataFrame, SparkSession  # noqa: E402
from pyspark.sql.streaming.query import StreamingQuery  # noqa: E402

from shardq.spark.ddl import columns_of  # noqa: E402
from shardq.spark.rows import arrow_schema  # noqa: E402
from shardq.spark.sinks import TaskReport  # noqa: E402
from shardq.spark.source import ShardqDataSource  # noqa: E402

SAMPLE = {"test_repeated_rows.py", "test_writing_and_browsing.py"}
"""Files that `make test` runs: on SQLite, with one Spark."""


@pytest.hookimpl(wrapper=True, tryfirst=True)  # before the long tests are cut into parts
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.spark)
            if item.path.name not in SAMPLE:
                item.add_marker(pytest.mark.long)
            item.add_marker(pytest.mark.filterwarnings("default"))  # PySpark has warnings of its own
    yield


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    if shutil.which("java") is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no Java")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    folders = [str(Path(__file__).parent), *filter(None, inherited)]  # the tasks run functions of the tests
    os.environ["PYTHONPATH"] = os.pathsep.join(folders)
    folder = tmp_path_factory.mktemp("spark")
    os.environ["SPARK_HOME"] = str(_spark_without_zip(folder / "home"))
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.streaming.pollingDelay": "1ms",
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.adaptive.enabled": "false",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # it lives for minutes only
    }
    conf = SparkConf().setMaster("local[2,3]").setAppName("shardq-tests").setAll(list(settings.items()))
    with _java(conf) as java:
        context = SparkContext(conf=conf, gateway=java)
        context.setLogLevel("OFF")
        session = SparkSession.builder.getOrCreate()
        yield session
        session.stop()


@contextmanager
def _java(conf: SparkConf) -> Iterator[Any]:
    """The JVM of Spark. PySpark leaves one that it starts, its pipe and its connections, to the garbage collector."""
    gateway = launch_gateway(conf)
    process = gateway.proc
    try:
        yield gateway
    finally:
        gateway.shutdown()
        process.stdin.close()  # it ends with that
        process.wait()


@pytest.fixture(scope="module", autouse=True)
def _garbage() -> Iterator[None]:
    """Sockets that PySpark leaves to the garbage collector: collected here, their warnings fail no later test."""
    yield
    gc.collect()


def _spark_without_zip(folder: Path) -> Path:
    """Spark without ``python/lib/pyspark.zip``, which each process that plans would compile anew: half a second.

    Those processes find the package where this one does.
    """
    folder.mkdir()
    for name in ("bin", "jars", "sbin"):
        (folder / name).symlink_to(Path(pyspark.__file__).parent / name)
    return folder


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    server = getattr(request, "param", "sqlite")
    if server == "sqlite":
        return f"sqlite:///{tmp_path}/queue.db"
    return str(request.getfixturevalue(SERVERS[server]))


@pytest.fixture
def client(url: str) -> Iterator[shardq.Client]:
    """A client on the real clock: Spark's processes have no other."""
    with shardq.connect(url) as opened:
        yield opened


@pytest.fixture
def make_queue(client: shardq.Client) -> Iterator[Callable[..., shardq.Queue]]:
    made: list[str] = []

    def make(**settings: Any) -> shardq.Queue:
        name = f"q{uuid.uuid4().hex[:10]}"
        made.append(name)
        return client.create_queue(name, **{"shards": 4, "time_shards": 2, **settings})

    yield make
    for name in made:
        client.delete_queue(name)


@pytest.fixture
def queue(make_queue: Callable[..., shardq.Queue]) -> shardq.Queue:
    return make_queue()


class Pipes:
    """Reads and writes queues with Spark, as users do."""

    def __init__(self, spark: SparkSession, url: str, folder: Path) -> None:
        self.spark, self.url, self.folder = spark, url, folder

    def options(self, queue: shardq.Queue, **options: object) -> dict[str, str]:
        return {"url": self.url, "queue": queue.name} | {name: str(value) for name, value in options.items()}

    def write(self, rows: DataFrame, queue: shardq.Queue, mode: str = "append", **options: object) -> None:
        rows.write.format("shardq").options(**self.options(queue, **options)).mode(mode).save()

    def read(self, queue: shardq.Queue, **options: object) -> DataFrame:
        return self.spark.read.format("shardq").options(**self.options(queue, **options)).load()

    def stream(self, queue: shardq.Queue, **options: object) -> DataFrame:
        return self.spark.readStream.format("shardq").options(**self.options(queue, **options)).load()

    def start(self, writer: Any, name: str = "checkpoint") -> StreamingQuery:
        """Start a stream that ends when everything that is there is done."""
        return writer.option("checkpointLocation", str(self.folder / name)).trigger(availableNow=True).start()

    def run(self, writer: Any, name: str = "checkpoint") -> StreamingQuery:
        query = self.start(writer, name)
        assert query.awaitTermination(120)
        return query

    def bodies(self, count: int, size: int = 0, start: int = 0) -> DataFrame:
        """Rows with bodies of their own: their numbers, filled up to a size."""
        return self.spark.range(start, start + count).selectExpr(
            f"rpad(cast(id as string), greatest({size}, length(cast(id as string))), '.') as body"
        )


@pytest.fixture
def pipes(spark: SparkSession, url: str, tmp_path: Path) -> Pipes:
    return Pipes(spark, url, tmp_path)


@pytest.fixture
def open_sink(url: str) -> Callable[..., Callable[[Iterable[tuple[Any, ...]]], int]]:
    """Begin a job that sends rows, as its only task.

    A call of what this returns is an attempt at the task; it returns how many rows were stored now.
    """

    def opened(
        queue: shardq.Queue | None, columns: str, **options: Any
    ) -> Callable[[Iterable[tuple[Any, ...]]], int]:
        schema = columns_of("rows", columns)
        given = {"url": url} if queue is None else {"url": url, "queue": queue.name}
        given |= {name.lower(): f"{one}" for name, one in options.items()}
        writer = ShardqDataSource(given).writer(schema, overwrite=False)

        def attempt(rows: Iterable[tuple[Any, ...]]) -> int:
            named = [dict(zip(schema.fieldNames(), row, strict=True)) for row in rows]
            table = pa.Table.from_pylist(named, schema=arrow_schema(schema))
            report = writer.write(iter(table.to_batches(max_chunksize=7)))
            assert isinstance(report, TaskReport)
            return report.done

        return attempt

    return opened


@pytest.fixture
def send(open_sink: Callable[..., Any]) -> Callable[..., int]:
    """Send rows as the only task of a job does; returns how many were stored now."""

    def sent(queue: shardq.Queue, columns: str, rows: Iterable[tuple[Any, ...]], **options: Any) -> int:
        return int(open_sink(queue, columns, **options)(rows))

    return sent


def numbers(queue: shardq.Queue) -> list[int]:
    """The numbers in the bodies of all messages, sorted."""
    return sorted(int(message.body.rstrip(b".")) for message in queue.peek(10_000_000))


@pytest.fixture
def numbers_in() -> Callable[[shardq.Queue], list[int]]:
    return numbers
