"""A stream whose driver is killed and which meets messages that fail it: what arrives, and what becomes a dead letter.

    python tools/spark/killed_driver.py [--url URL] [--master MASTER] [--messages N] [--kills 2] [--poison 2]

A driver on ``local[2]``, or on a cluster, drains a queue to Parquet and starts its query again whenever a poison
message fails it. It is killed with all its processes, at random moments, and started again from its checkpoint. Ends
with 0 when every message is in the files once or a dead letter, the poison ones are dead letters, and nothing is left
in the queue.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from local_session import local_session
from process_tree import killed_when
from pyspark.errors import StreamingQueryException

import shardq

SECONDS = 900.0
NAME, BATCH = "killed", 1_000
POISONED = "is not true"
LATE = "failed to connect back"  # Spark gives a query's Python ten seconds to start, which a busy machine may not


def main() -> None:
    options = _options()
    if options.drive is not None:
        _drive(options.url, options.master, Path(options.drive))
        return
    with tempfile.TemporaryDirectory(prefix="shardq-killed-") as folder:
        url = options.url or f"sqlite:///{folder}/queue.db"
        with shardq.connect(url) as client:
            queue = client.create_queue(NAME, shards=4, time_shards=2, max_deliveries=2)
            try:
                sound = _supervise(client, queue, url, Path(folder), options)
            finally:
                client.delete_queue(NAME)
                client.delete_queue(f"{NAME}.dead")
    sys.exit(0 if sound else 1)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", help="The store. Default: a fresh SQLite file.")
    parser.add_argument("--master", default="local[2]", help="Where the driver has its executors.")
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--poison", type=int, default=2)
    parser.add_argument("--drive", metavar="FOLDER", help=argparse.SUPPRESS)
    return parser.parse_args()


def _supervise(
    client: shardq.Client, queue: shardq.Queue, url: str, folder: Path, options: argparse.Namespace
) -> bool:
    every = {f"{number}" for number in range(options.messages)}
    poison = {f"poison {number}" for number in range(options.poison)}
    bodies = [*every, *poison]
    random.shuffle(bodies)
    queue.producer(bundle_messages=50).send_many([body.encode() for body in bodies])
    left = len(bodies)
    for _ in range(options.kills):
        goal = left - random.randrange(BATCH // 2, 3 * BATCH)  # the next ones come with the next driver
        _run(url, options.master, folder, partial(_is_down_to, queue, goal))
        left = _stored(queue)
    _run(url, options.master, folder, None)
    dead = [message.body.decode() for message in client.queue(f"{NAME}.dead").peek(len(bodies))]
    found = _arrived(folder)
    counts = queue.counts()
    sound = (
        sorted([*found, *dead]) == sorted(bodies)
        and poison <= set(dead)
        and (counts.ready, counts.delayed, counts.in_flight) == (0, 0, 0)
    )
    figures = {
        "messages": len(bodies),
        "in_files": len(found),
        "different": len(set(found)),
        "dead": len(dead),
    }
    print(json.dumps({"sound": sound, **figures, "poison_dead": len(poison & set(dead))}), flush=True)
    return sound


def _is_down_to(queue: shardq.Queue, goal: int) -> bool:
    return _stored(queue) <= goal


def _stored(queue: shardq.Queue) -> int:
    counts = queue.counts()
    return counts.ready + counts.delayed + counts.in_flight


def _run(url: str, master: str, folder: Path, kill_when: Callable[[], bool] | None) -> None:
    """Run a driver to its end, or until it is to be killed."""
    command = [sys.executable, __file__, "--url", url, "--master", master, "--drive", str(folder)]
    with (folder / "driver.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    killed = killed_when(process, kill_when or (lambda: False), SECONDS)
    if killed != (kill_when is not None) or process.returncode != (-signal.SIGKILL if killed else 0):
        raise RuntimeError(
            f"a driver ended with {process.returncode}: {(folder / 'driver.log').read_text()[-3_000:]}"
        )
    print("ended" if kill_when is None else "killed", flush=True)


def _drive(url: str, master: str, folder: Path) -> None:
    """Drain the queue; start again when a poison message fails the query."""
    settings = {"sql_warehouse_dir": f"{folder}/warehouse", "executor_memory": "700m"}
    spark = local_session(NAME, master, **settings)
    try:
        while True:
            rows = (
                spark.readStream.format("shardq")
                .options(url=url, queue=NAME, maxMessagesPerTrigger=BATCH)
                .load()
            )
            checked = rows.selectExpr(
                "cast(body AS string) AS body", "assert_true(NOT startswith(body, 'poison')) AS fine"
            )
            writer = checked.writeStream.format("parquet").option("path", f"{folder}/out")
            writer = writer.option("checkpointLocation", f"{folder}/checkpoint")
            try:
                writer.trigger(availableNow=True).start().awaitTermination()
            except StreamingQueryException as error:
                if not any(text in str(error) for text in (POISONED, LATE)):
                    raise
                continue
            return
    finally:
        spark.stop()


def _arrived(folder: Path) -> list[str]:
    """What the files hold, as the log of the sink names them."""
    spark = local_session(NAME, "local[2]")
    try:
        return [row.body for row in spark.read.parquet(f"{folder}/out").select("body").collect()]
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
