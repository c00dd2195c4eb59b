"""A million rows into a queue and out of it again to Parquet: as many, and the same ones.

    python tools/spark/million.py [--url URL] [--rows N] [--size BYTES]

Ends with 0 when count, number of different rows and hash are the same in the rows, in the queue and in the files, and
nothing is left in the queue. One JSON object on stdout.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from local_session import local_session
from pyspark.sql import DataFrame, SparkSession
from trial_options import trial_options

import shardq
from shardq.spark.jobs.drain import drain
from shardq.spark.jobs.place import Place

NAME = "million"


def main() -> None:
    options = trial_options(__doc__)
    spark = local_session(NAME, "local[2,3]", driver_memory="2g")
    try:
        with tempfile.TemporaryDirectory(prefix="shardq-million-") as folder:
            url = options.url or f"sqlite:///{folder}/million.db"
            same = _there_and_back(spark, url, Path(folder), options)
    finally:
        spark.stop()
    sys.exit(0 if same else 1)


def _there_and_back(spark: SparkSession, url: str, folder: Path, options: argparse.Namespace) -> bool:
    body = f"cast(rpad(cast(id as string), {options.size}, sha2(cast(id as string), 512)) as binary) as body"
    rows = spark.range(0, options.rows, 1, 2).selectExpr(body)
    with shardq.connect(url) as client:
        queue = client.create_queue(NAME, shards=8, time_shards=4)
        try:
            place = Place(url, NAME)
            begun = time.monotonic()
            place.writer(rows).save()
            written = time.monotonic()
            stored = place.read(spark).select("body")
            sums = {"rows": _sum_of(rows), "queue": _sum_of(stored)}
            looked = time.monotonic()
            drain(spark, place, str(folder / "out"), select=["body"])
            drained = time.monotonic()
            sums["files"] = _sum_of(spark.read.parquet(str(folder / "out")))
            left = queue.counts()
        finally:
            client.delete_queue(NAME)
    same = len(set(sums.values())) == 1 and sums["rows"][:2] == (options.rows, options.rows)
    same = same and (left.ready, left.delayed, left.in_flight) == (0, 0, 0)
    seconds = {"write": round(written - begun, 1), "drain": round(drained - looked, 1)}
    print(json.dumps({"same": same, **sums, "seconds": seconds}))
    return same


def _sum_of(rows: DataFrame) -> tuple[int, int, str]:
    """How many rows, how many different ones, and the sum of their hashes."""
    found = rows.selectExpr(
        "count(*)",
        "count(distinct sha2(body, 256))",
        "cast(sum(cast(xxhash64(body) as decimal(38, 0))) as string)",
    )
    row = found.first()
    assert row is not None
    return row[0], row[1], row[2]


if __name__ == "__main__":
    main()
