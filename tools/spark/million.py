"""A million rows of mixed types go into a queue and out of it, by `shardq spark load` and `drain`, killed on the way.

    python tools/spark/million.py [--url URL] [--rows N] [--kills 2]
    python tools/servers/mongodb.py run -- python tools/spark/million.py --url {url}
    python tools/servers/cassandra.py run -- python tools/spark/million.py --url {url}

Each of the two jobs is killed so many times, its driver with JVM and workers, at equal parts of its way, and is run
again. Ends with 0 when the count, the different rows and the sum of hashes are equal for the rows and for what was read
back from the drained files, and nothing is left in the queue. One JSON object on stdout.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from local_session import local_session
from process_tree import killed_when
from pyspark.sql import DataFrame, SparkSession, functions

import shardq
from shardq.spark.jobs.files import EXACT

NAME = "million"
SECONDS = 1_500.0
STARTS = 5
Result = TypeVar("Result")
COLUMNS = """
    id, cast(id % 100 as tinyint) as small, concat('row ', id, ' \u00e4"') as name,
    cast(id * 1.01 as decimal(20, 4)) as amount, if(id % 7 = 0, double('NaN'), id / 3) as ratio, id % 2 = 0 as even,
    timestamp_micros(1700000000000000 + id * 1001) as at, cast(timestamp_micros(id) as timestamp_ntz) as local,
    date_add(date'2024-01-01', cast(id % 1000 as int)) as day, unhex(sha2(cast(id as string), 256)) as raw,
    make_dt_interval(cast(id % 50 as int), 1, 2, 3.000004) as took, if(id % 3 = 0, null, array(id, null)) as numbers,
    map('k', id % 5, 'null', null) as attributes, named_struct('x', id, 'y', array(cast(id as string))) as nested
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", help="The store. Default: a fresh SQLite file.")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=2, help="How many times each job is killed.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="shardq-million-") as folder:
        url = options.url or f"sqlite:///{folder}/million.db"
        with shardq.connect(url) as client:
            queue = client.create_queue(NAME, shards=8, time_shards=4)
            try:
                same = _there_and_back(queue, url, Path(folder), options)
            finally:
                client.delete_queue(NAME)
    sys.exit(0 if same else 1)


def _there_and_back(queue: shardq.Queue, url: str, folder: Path, options: argparse.Namespace) -> bool:
    rows, parts = options.rows, options.kills + 1
    _in_spark(lambda spark: spark.range(0, rows, 1, 4).selectExpr(*_columns()).write.parquet(f"{folder}/in"))
    shell = [str(Path(sys.executable).with_name("shardq")), "--url", url, "spark"]
    load = [*shell, "load", NAME, f"{folder}/in", "--set", "runId=million"]
    drain = [*shell, "drain", NAME, f"{folder}/out", "--set", f"maxMessagesPerTrigger={max(rows // 5, 1)}"]
    drain += ["--set", f"leaseSeconds={SECONDS:.0f}"]  # a driver may take minutes to start on a busy machine
    begun = time.monotonic()
    for part in range(1, parts):
        _kill(load, partial(_has, queue, most=rows, least=rows * part // parts))
    _run(load)
    loaded, stored = time.monotonic(), queue.counts().ready
    for part in range(1, parts):
        _kill(drain, partial(_has, queue, most=rows - rows * part // parts, least=0))
    _run(drain)
    drained, left = time.monotonic(), queue.counts()
    sums = _in_spark(
        lambda spark: _sums(spark.read.parquet(f"{folder}/in"), spark.read.parquet(f"{folder}/out"))
    )
    same = sums[0] == sums[1] and sums[0][:2] == (rows, rows) and stored == rows
    same = same and (left.ready, left.delayed, left.in_flight) == (0, 0, 0)
    seconds = {"load": round(loaded - begun, 1), "drain": round(drained - loaded, 1)}
    print(
        json.dumps(
            {
                "same": same,
                "killed": 2 * options.kills,
                "stored": stored,
                "rows": sums[0],
                "files": sums[1],
                "seconds": seconds,
            }
        )
    )
    return same


def _has(queue: shardq.Queue, *, most: int, least: int) -> bool:
    return least <= queue.counts().ready <= most


def _columns() -> Sequence[str]:
    """The expressions, cut at the commas outside of brackets."""
    found, depth = [""], 0
    for letter in COLUMNS:
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and not depth:
            found.append("")
        else:
            found[-1] += letter
    return [one.strip() for one in found]


def _in_spark(work: Callable[[SparkSession], Result]) -> Result:
    """In a session of its own, which is not there while a job runs."""
    spark = local_session(NAME, "local[2]", driver_memory="2g", sql_session_timeZone="UTC")
    try:
        return work(spark)
    finally:
        spark.stop()


def _sums(rows: DataFrame, files: DataFrame) -> list[tuple[int, int, str]]:
    text = functions.col("body").cast("string")
    parsed = functions.from_json(text, rows.schema, {"mode": "FAILFAST"})
    return [_sum_of(rows), _sum_of(files.select(parsed.alias("row")).select("row.*"))]


def _sum_of(rows: DataFrame) -> tuple[int, int, str]:
    """How many rows, how many different ones, and the sum of their hashes."""
    texts = rows.select(functions.to_json(functions.struct("*"), EXACT).alias("text"))
    hashed = "cast(sum(cast(xxhash64(text) as decimal(38, 0))) as string)"
    row = texts.selectExpr("count(*)", "count(distinct xxhash64(text))", hashed).first()
    assert row is not None
    return row[0], row[1], row[2]


def _kill(command: Sequence[str], ready: Callable[[], bool]) -> None:
    """Run it until it is ready to be killed, and kill it with all its processes."""
    if not _repeat(command, ready):
        raise RuntimeError(f"it ended before it was killed: {' '.join(command)}")
    print(f"killed: {' '.join(command[3:5])}", flush=True)


def _run(command: Sequence[str]) -> None:
    """Run it to the end."""
    _repeat(command, lambda: False)


def _repeat(command: Sequence[str], kill_when: Callable[[], bool]) -> bool:
    """Run it; again when Spark gave the Python of a query up, which has ten seconds to start.

    Returns whether it was killed.
    """
    for left in reversed(range(STARTS)):
        with tempfile.TemporaryFile("w+") as log:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)
            killed = killed_when(process, kill_when, SECONDS)
            log.seek(0)
            said = log.read()
        if killed or process.returncode == 0:
            return killed
        print(said[-3_000:], file=sys.stderr)
        if not left or "failed to connect back" not in said:
            raise RuntimeError(f"it ended with {process.returncode}: {' '.join(command)}")
    raise AssertionError


if __name__ == "__main__":
    main()
