"""How many connections to a store the processes of Spark have: while they send, while they read, and after that.

    python tools/spark/connections.py [--url URL] [--rows N] [--idle SECONDS]
    python tools/servers/mongodb.py run -- python tools/spark/connections.py --url {url}
    python tools/servers/cassandra.py run -- python tools/spark/connections.py --url {url}

Two executors of one core each. One JSON object for each phase: the most connections that one worker had, that all
workers had together, and that all other processes of Spark had together, as the kernel shows them; and how many the
server itself counted beyond those before. On SQLite they are the open files of the database.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import psutil
from clusters import local_cluster
from local_session import local_session
from process_tree import command_of, descendants_of
from pyspark.sql import SparkSession

import shardq
from shardq.spark.connection import IDLE_SECONDS
from shardq.spark.jobs.files import drain
from shardq.spark.jobs.job import QueueLocation
from shardq.storage.sqlite.url import path_in

NAME = "connections"
WORKER = "pyspark.worker"  # of tasks; what plans are others


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", help="The store. Default: a fresh SQLite file.")
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--idle", type=float, default=IDLE_SECONDS + 15.0, help="Seconds without a task.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="shardq-connections-") as folder:
        url = options.url or f"sqlite:///{folder}/queue.db"
        place = QueueLocation(url, NAME)
        with shardq.connect(url) as client, local_cluster(Path(folder)) as master:
            client.create_queue(NAME, shards=8, time_shards=2)
            os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
            spark = local_session(NAME, master, executor_memory="700m")
            try:
                _phases(spark, place, folder, options)
            finally:
                spark.stop()
                client.delete_queue(NAME)


def _phases(spark: SparkSession, place: QueueLocation, folder: str, options: argparse.Namespace) -> None:
    rows = spark.range(0, options.rows, 1, 4).selectExpr("rpad(cast(id as string), 512, 'x') as body")
    before = _at_server(place.url)
    with _measured("sending", place.url, before):
        place.writer(rows).save()
    with _measured("reading", place.url, before):
        drain(spark, place, f"{folder}/out")
    time.sleep(options.idle)
    with _measured(f"{options.idle:.0f} s after the last task", place.url, before):
        time.sleep(1.0)


@contextmanager
def _measured(phase: str, url: str, before: int) -> Iterator[None]:
    over, found = (
        threading.Event(),
        {"of_a_worker": 0, "of_all_workers": 0, "of_the_driver": 0, "at_the_server": 0},
    )

    def sample() -> None:
        while not over.wait(0.1):
            seen = _seen(url) | {"at_the_server": _at_server(url) - before}
            for name, number in seen.items():
                found[name] = max(found[name], number)

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    print(json.dumps({"phase": phase, "workers": len(_workers()), **found}), flush=True)


def _workers() -> list[int]:
    """The children of the daemons, which have the same command."""
    found = [one for one in descendants_of(os.getpid()) if WORKER in command_of(one)]
    return [one for one in found if WORKER in command_of(_parent(one))]


def _parent(process: int) -> int:
    with suppress(psutil.NoSuchProcess):
        return int(psutil.Process(process).ppid())
    return 0


def _seen(url: str) -> dict[str, int]:
    workers = _workers()
    others = set(descendants_of(os.getpid())) - set(workers)
    counts = [count_of_process(worker, url) for worker in workers]
    return {
        "of_a_worker": max(counts, default=0),
        "of_all_workers": sum(counts),
        "of_the_driver": sum(count_of_process(other, url) for other in others),
    }


def count_of_process(process: int, url: str) -> int:
    """Count the connections that a process has to a store; 0 for one that has ended."""
    with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        if url.startswith("sqlite:"):
            return sum(file.path == _file_of(url) for file in psutil.Process(process).open_files())
        port = urlsplit(url.partition(",")[0]).port
        established = psutil.Process(process).net_connections("tcp")
        return sum(
            bool(one.raddr) and one.raddr.port == port and one.status == "ESTABLISHED" for one in established
        )
    return 0


def _file_of(url: str) -> str:
    """The file that a URL of SQLite names."""
    return str(Path(path_in(url)).resolve())


_ask: dict[str, Callable[[], int]] = {}


def _at_server(url: str) -> int:
    """What the server counts, this one's own included; 0: it has no such count."""
    if url not in _ask:
        _ask[url] = _asking(url)
    return _ask[url]()


def _asking(url: str) -> Callable[[], int]:
    if url.startswith("mongodb:"):
        from pymongo import MongoClient  # noqa: PLC0415

        admin = MongoClient[dict[str, object]](url).admin
        return lambda: int(admin.command("serverStatus")["connections"]["current"])
    if url.startswith("cassandra:"):
        from cassandra.cluster import Cluster  # noqa: PLC0415

        parts = urlsplit(url)
        session = Cluster([parts.hostname], port=parts.port or 9042).connect()
        return lambda: int(session.execute("SELECT count(*) FROM system_views.clients").one()[0])
    return lambda: 0


if __name__ == "__main__":
    main()
