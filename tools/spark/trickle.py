"""How long a message takes through a stream when few come: from its send to the end of the batch that has it.

    python tools/spark/trickle.py [--url URL] [--rate 10] [--seconds 60] [--shards N]
    python tools/servers/mongodb.py run -- python tools/spark/trickle.py --url {url}
    python tools/servers/cassandra.py run -- python tools/spark/trickle.py --url {url}

A thread sends one message at a time, so many a second. A stream on ``local[2]`` with Spark's default trigger collects
each batch in ``foreachBatch``. The seconds from before the send until the batch was collected are printed as one JSON
object, those of the first ten seconds left out, and where the triggers' time went, as Spark reports it. Ends with 0
when every message came once.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from local_session import local_session
from pyspark.sql import DataFrame, SparkSession

import shardq

WARM_SECONDS = 10.0
PATIENCE_SECONDS = 60.0
STEPS = ("latestOffset", "queryPlanning", "walCommit", "addBatch", "commitOffsets", "triggerExecution")


def main() -> None:
    options = _parsed()
    with tempfile.TemporaryDirectory(prefix="shardq-trickle-") as folder:
        url = options.url or f"sqlite:///{folder}/trickle.db"
        with shardq.connect(url) as client:
            queue = client.create_queue(f"t{uuid.uuid4().hex[:8]}", shards=options.shards, time_shards=1)
            spark = local_session("trickle", "local[2]")
            try:
                complete = _measure(spark, queue, url, Path(folder), options)
            finally:
                spark.stop()
                client.delete_queue(queue.name)
    sys.exit(0 if complete else 1)


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", help="The store. Default: a fresh SQLite file.")
    parser.add_argument("--rate", type=float, default=10.0, help="Messages a second.")
    parser.add_argument("--seconds", type=float, default=60.0, help="For how long they are sent.")
    parser.add_argument("--shards", type=int, default=16)
    return parser.parse_args()


def _measure(
    spark: SparkSession, queue: shardq.Queue, url: str, folder: Path, options: argparse.Namespace
) -> bool:
    sent: int = round(options.rate * options.seconds)
    arrived: list[tuple[float, float]] = []

    def note(batch: DataFrame, _: int) -> None:
        bodies = [bytes(row.body) for row in batch.select("body").collect()]
        now = time.time()
        arrived.extend((float(body), now) for body in bodies)

    checkpoint = str(folder / "checkpoint")
    rows = spark.readStream.format("shardq").options(url=url, queue=queue.name, checkpointLocation=checkpoint)
    query = rows.load().writeStream.foreachBatch(note).option("checkpointLocation", checkpoint).start()
    sender = threading.Thread(target=_send, args=(queue, options.rate, sent))
    sender.start()
    sender.join()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(arrived) < sent and time.monotonic() < deadline:
        time.sleep(0.1)
    query.processAllAvailable()
    progress = [dict(one.durationMs) for one in query.recentProgress if one.numInputRows]
    query.stop()
    begun = min((moment for moment, _ in arrived), default=0.0)
    took = [end - moment for moment, end in arrived if moment >= begun + WARM_SECONDS]
    print(json.dumps(_figures(took) | {"sent": sent, "arrived": len(arrived), "ms": _steps(progress)}))
    return len(arrived) == len(set(arrived)) == sent


def _send(queue: shardq.Queue, rate: float, count: int) -> None:
    """Each message has the moment of its send."""
    begun = time.monotonic()
    with queue.producer() as producer:
        for number in range(count):
            time.sleep(max(0.0, begun + number / rate - time.monotonic()))
            producer.send(repr(time.time()).encode())


def _figures(took: Iterable[float]) -> dict[str, Any]:
    hundredths = statistics.quantiles(took, n=100)
    return {f"p{part}_s": round(hundredths[part - 1], 3) for part in (50, 95, 99)}


def _steps(progress: Iterable[Mapping[str, int]]) -> dict[str, float]:
    """Medians of the triggers that had messages."""
    found = [one for one in progress if "addBatch" in one]
    return {step: statistics.median(one.get(step, 0) for one in found) for step in STEPS} if found else {}


if __name__ == "__main__":
    main()
