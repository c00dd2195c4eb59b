"""Whether the driver needs more memory for more rows.

    python tools/spark/driver_memory.py [--rows N] [--times 10] [--bundle-messages 500]

Writes rows into a queue on SQLite and drains them to Parquet, once few and once many times more, each time with a
new driver and two executors that are processes of their own. Of the driver are compared: the peak of its Python
process, the peak of the Python processes that Spark starts beside it to plan and ack, and what its JVM still holds
after a collection at the end, in a heap of 512 MB. Ends with 0 when none of them grew by more than 25 % and 20 MB.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clusters import local_cluster
from local_session import local_session
from process_tree import descendants_of, peak_of, resident
from pyspark.sql import SparkSession

import shardq
from shardq.spark.jobs.files import drain
from shardq.spark.jobs.job import QueueLocation

MEGABYTE = 1 << 20
FACTOR, SLACK = 1.25, 20  # megabytes
COMPARED = ("python_driver", "python_beside", "jvm_live_heap")
EXECUTOR = "CoarseGrainedExecutorBackend"
TRIAL_SECONDS = 500


def main() -> None:
    options = _options()
    if options.measure:
        print(json.dumps(_measure(options.rows, options.bundle_messages)))
        return
    few = _in_a_new_process(options.rows, options)
    many = _in_a_new_process(options.rows * options.times, options)
    grown = [name for name in COMPARED if many[name] > few[name] * FACTOR + SLACK]
    for figures in (few, many, {"grown": grown}):
        print(json.dumps(figures))
    sys.exit(1 if grown else 0)


def _in_a_new_process(rows: int, options: argparse.Namespace) -> dict[str, int]:
    words = [__file__, "--measure", "--rows", str(rows), "--bundle-messages", str(options.bundle_messages)]
    done = subprocess.run(
        [sys.executable, *words], stdout=subprocess.PIPE, text=True, timeout=TRIAL_SECONDS, check=True
    )
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return found


def _measure(rows: int, bundle_messages: int) -> dict[str, int]:
    with tempfile.TemporaryDirectory(prefix="shardq-memory-") as temporary:
        folder = Path(temporary)
        with local_cluster(folder) as master:
            spark = local_session(
                "memory",
                master,
                driver_memory="512m",
                executor_memory="700m",
                local_dir=str(folder / "local"),
            )
            java = _java_of(spark).lang.ProcessHandle.current().pid()
            with _watched(java) as beside:
                _there_and_back(spark, folder, rows, bundle_messages)
            found = {
                "rows": rows,
                "python_driver": peak_of(os.getpid()),
                "python_beside": max(beside),
                "jvm_live_heap": _live_heap(spark),
                "jvm_resident": peak_of(java),
            }
            spark.stop()
    return {name: value if name == "rows" else round(value / MEGABYTE) for name, value in found.items()}


def _there_and_back(spark: SparkSession, folder: Path, rows: int, bundle_messages: int) -> None:
    place = QueueLocation(f"sqlite:///{folder}/queue.db", "memory")
    with shardq.connect(place.url) as client:
        queue = client.create_queue("memory", shards=4, time_shards=2)
        bodies = spark.range(0, rows, 1, 4).selectExpr("rpad(cast(id as string), 512, 'x') as body")
        place.writer(bodies, bundleMessages=bundle_messages).save()
        assert queue.counts().ready == rows
        assert drain(spark, place, str(folder / "out"), select=["body"]).messages == rows
        counts = queue.counts()
        assert (counts.ready, counts.in_flight) == (0, 0), counts


@contextmanager
def _watched(java: int) -> Iterator[list[int]]:
    """What the processes below the driver's JVM have together, a few times a second; not the executors."""
    seen, over = [0], threading.Event()

    def look() -> None:
        while not over.wait(0.25):
            seen.append(sum(map(resident, descendants_of(java, without=EXECUTOR))))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def _java_of(spark: SparkSession) -> Any:
    assert spark._jvm is not None
    return spark._jvm.java


def _live_heap(spark: SparkSession) -> int:
    runtime = _java_of(spark).lang.Runtime.getRuntime()
    for _ in range(3):
        _java_of(spark).lang.System.gc()
    return int(runtime.totalMemory() - runtime.freeMemory())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--bundle-messages", type=int, default=500)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
