"""What an idle stream costs: the time of a tick, and processor time beyond that of a rate source without rows.

    python tools/spark/idle.py [--url URL] [--seconds N] [--rounds N] [--shards N ...]
    python tools/servers/mongodb.py run -- python tools/spark/idle.py --url {url}
    python tools/servers/cassandra.py run -- python tools/spark/idle.py --url {url}

Each number of shards has a queue, on a fresh SQLite file without a URL, of which every shard was used and is empty. A
tick is measured as it is in a stream, where few look, and when each looks. The processor time of queries is that of
this process and all below it: the JVM and the Python workers. The queries run one after the other, with the trigger
that is the default, and the figures are medians of the rounds.
``--rounds 0`` leaves them out. One JSON object for each figure.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from local_session import local_session
from process_tree import descendants_of, processor_of
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadMaxRows

import shardq
from shardq.spark import planning
from shardq.spark.claim_stream import ClaimStream
from shardq.spark.options import ClaimStreamOptions
from shardq.spark.rows import schema_of

TICKS = 200
SETTLE_SECONDS = 5.0


def main() -> None:
    options = _parsed()
    with tempfile.TemporaryDirectory(prefix="shardq-spark-") as folder:
        url = options.url or f"sqlite:///{folder}/idle.db"
        for shards in options.shards:
            _used(url, f"q{shards}", shards)
            _print(what="tick", shards=shards, **_ticks(url, f"q{shards}"))
            with _always_looking():
                _print(what="tick that looks", shards=shards, **_ticks(url, f"q{shards}"))
        if not options.rounds:
            return
        spark = local_session("idle", "local[2]")
        rate = (
            spark.readStream.format("rate").option("rowsPerSecond", 1).option("rampUpTime", "100000s").load()
        )
        for shards in options.shards:
            own = spark.readStream.format("shardq").options(url=url, queue=f"q{shards}").load()
            _compare(rate, own, shards, options)
        _end(spark)


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", help="The store. Default: a fresh SQLite file.")
    parser.add_argument("--seconds", type=float, default=20.0, help="How long each query is measured.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shards", type=int, nargs="+", default=[16, 200])
    return parser.parse_args()


def _used(url: str, name: str, shards: int) -> None:
    """A queue of which every shard had messages and has none any more."""
    with shardq.connect(url) as client:
        queue = client.create_queue(name, shards=shards, time_shards=1)
        queue.producer(bundle_messages=1).send_many([b"x"] * shards * 4)
        with queue.consumer() as consumer:
            for batch in consumer.batches(1_000, wait=0.2):
                batch.ack()


def _ticks(url: str, queue: str) -> dict[str, float]:
    options = ClaimStreamOptions(url=url, queue=queue)
    reader = ClaimStream(options, schema_of(options))
    start = reader.initialOffset()
    times, used = [], time.process_time()
    for _ in range(TICKS):
        begun = time.perf_counter()
        assert reader.latestOffset(start, ReadMaxRows(100_000)) == start
        times.append((time.perf_counter() - begun) * 1_000)
        time.sleep(0.01)
    used = time.process_time() - used
    reader.stop()
    worst = statistics.quantiles(times, n=100)[98]
    return {
        "median_ms": round(statistics.median(times), 2),
        "p99_ms": round(worst, 2),
        "processor_ms": round(used * 1_000 / TICKS, 3),
    }


@contextmanager
def _always_looking() -> Iterator[None]:
    before = planning.LONGEST_REST, planning.LAST_POLL
    planning.LONGEST_REST = planning.LAST_POLL = 0.0
    try:
        yield
    finally:
        planning.LONGEST_REST, planning.LAST_POLL = before


def _compare(rate: DataFrame, own: DataFrame, shards: int, options: argparse.Namespace) -> None:
    """Percent of a core of each in turn."""
    shares: dict[str, list[float]] = {"rate": [], "shardq": []}
    for _ in range(options.rounds):
        for name, rows in (("rate", rate), ("shardq", own)):
            query = rows.writeStream.format("noop").start()
            time.sleep(SETTLE_SECONDS)
            before, begun = _processor(), time.monotonic()
            time.sleep(options.seconds)
            used, took = _used_since(before), time.monotonic() - begun
            query.stop()
            shares[name].append(100 * used / took)
    beyond = [mine - theirs for mine, theirs in zip(shares["shardq"], shares["rate"], strict=True)]
    _print(
        what="percent of a core",
        shards=shards,
        beyond_rate=round(statistics.median(beyond), 1),
        **{name: [round(share, 1) for share in found] for name, found in shares.items()},
    )


def _processor() -> dict[int, float]:
    """Seconds of this process and of each below it."""
    own = os.getpid()
    return {process: processor_of(process) for process in [own, *descendants_of(own)]}


def _used_since(before: dict[int, float]) -> float:
    """What those of them have used since then that have not ended."""
    return sum(max(0.0, now - before.get(process, 0.0)) for process, now in _processor().items())


def _end(spark: SparkSession) -> None:
    for query in spark.streams.active:
        query.stop()
    spark.stop()


def _print(**figures: Any) -> None:
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
