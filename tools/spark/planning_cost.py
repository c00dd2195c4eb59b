"""What a trigger of a stream costs the driver, by the number of shards in use: milliseconds and requests of the store.

    python tools/spark/planning_cost.py [--url URL] [--shards N ...]
    python tools/servers/mongodb.py run -- python tools/spark/planning_cost.py --url {url} --shards 10 100 1000
    python tools/servers/cassandra.py run -- python tools/spark/planning_cost.py --url {url}

Each number of shards has a queue with a message in each shard. Measured are the trigger that plans a batch, extending
the leases of a batch and acking it, and, when every shard was used and is empty, the trigger that looks in vain. The
medians of ``--ticks`` triggers are printed, one JSON object for each number, and at the end a straight line through
them: what a trigger costs for 1,000 shards, and beside them. Spark does not run.
"""

from __future__ import annotations

import argparse
import json
import secrets
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable
from threading import Lock
from typing import Any

import numpy as np
from pyspark.sql.streaming.datasource import ReadMaxRows

import shardq
from shardq.base.clock import SystemClock
from shardq.base.shard import Shard
from shardq.spark import connection, planning
from shardq.spark.claim_stream import ClaimPartition, ClaimStream, claims_for
from shardq.spark.options import ClaimStreamOptions
from shardq.spark.rows import schema_of
from shardq.storage.bundles import BundleData, encode_bundle, repeatable_bundle_id
from shardq.storage.opening import open_store
from shardq.storage.requests import Append, Bundle
from shardq.storage.store import Store
from shardq.storage.wrapped_store import WrappedStore

BATCH = ReadMaxRows(100_000)


class Counting(WrappedStore):
    """Counts the requests of the port."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.calls, self._lock = 0, Lock()

    def call(self, method: str, do: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with self._lock:
            self.calls += method != "now"
        return super().call(method, do, *args, **kwargs)


def main() -> None:
    options = _parsed()
    planning.LONGEST_REST = planning.LAST_POLL = 0.0  # else an idle trigger asks nothing, as a rule
    with tempfile.TemporaryDirectory(prefix="shardq-spark-") as folder:
        url = options.url or f"sqlite:///{folder}/planning.db"
        rows = [_measure(url, shards, options.ticks) for shards in options.shards]
    for step in ("idle", "plan"):
        slope, fixed = np.polyfit([row["shards"] for row in rows], [row[f"{step}_ms"] for row in rows], 1)
        print(
            json.dumps({"step": step, "ms_per_1000_shards": round(slope * 1_000, 1), "ms": round(fixed, 1)})
        )


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", help="The store. Default: a fresh SQLite file.")
    parser.add_argument("--shards", type=int, nargs="+", default=[10, 100, 1_000, 10_000])
    parser.add_argument("--ticks", type=int, default=20)
    return parser.parse_args()


def _measure(url: str, shards: int, ticks: int) -> dict[str, Any]:
    name = f"p{uuid.uuid4().hex[:8]}"
    options = ClaimStreamOptions(url=url, queue=name)
    store = Counting(open_store(url, SystemClock()))
    with shardq.Client(store) as client:
        shared = connection.SharedConnection(url, 15.0)
        shared.client = client
        connection.shared_connection = lambda *_: shared  # type: ignore[assignment] # for the streams of this process
        queue = client.create_queue(name, shards=shards, time_shards=1)
        for number in range(shards):
            store.append(Append(Shard(name, 0, number), (_bundle(store.now()),)))
        used = len(store.shards(name))
        found: dict[str, Any] = {"shards": used}
        try:
            found |= _of_batches(options, store, ticks)
            _empty(queue)
            reader = ClaimStream(options, schema_of(options))
            start = reader.initialOffset()
            _ticks(reader, start, store, 3)
            found |= _named("idle", *_ticks(reader, start, store, ticks * 5))
            reader.stop()
        finally:
            client.delete_queue(name)
    print(json.dumps(found), flush=True)
    return found


def _bundle(now: int) -> Bundle:
    """A message of its own."""
    identity = repeatable_bundle_id(now, 0, secrets.token_hex(8))
    return Bundle(identity, 5, now, now, 1, encode_bundle(BundleData([b"x"])))


def _of_batches(options: ClaimStreamOptions, store: Counting, ticks: int) -> dict[str, Any]:
    """Planning a batch; then its leases and its ack."""
    reader = ClaimStream(options, schema_of(options))
    start = reader.initialOffset()
    planned = _named("plan", *_ticks(reader, start, store, ticks))
    end = reader.latestOffset(start, BATCH)
    tasks = reader.partitions(start, end)
    rows = sum(batch.num_rows for task in tasks for batch in reader.read(task))
    names = [claim for task in tasks if isinstance(task, ClaimPartition) for claim in task.claims]
    claims = claims_for(options, connection.context_of(options))
    extended = _named("extend", *_timed(lambda: claims.extend(names), store))
    acked = _named("ack", *_timed(lambda: claims.ack(names), store))
    reader.stop()
    return planned | {"tasks": len(tasks), "claims": len(names), "batch": rows} | extended | acked


def _ticks(reader: ClaimStream, start: Any, store: Counting, ticks: int) -> tuple[float, float]:
    found = []
    for _ in range(ticks):
        found.append(_timed(lambda: reader.latestOffset(start, BATCH), store))
        time.sleep(0.01)
    return statistics.median(ms for ms, _ in found), statistics.median(calls for _, calls in found)


def _timed(work: Callable[[], object], store: Counting) -> tuple[float, float]:
    """Milliseconds and requests."""
    before, begun = store.calls, time.perf_counter()
    work()
    return (time.perf_counter() - begun) * 1_000, store.calls - before


def _named(step: str, ms: float, calls: float) -> dict[str, float]:
    return {f"{step}_ms": round(ms, 2), f"{step}_requests": round(calls)}


def _empty(queue: shardq.Queue) -> None:
    with queue.consumer() as consumer:
        for batch in consumer.batches(10_000, wait=0.5):
            batch.ack()


if __name__ == "__main__":
    main()
