"""What a task of a sink does: sends its rows in parts, a bounded number of them at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial

import msgspec
import pyarrow as pa
from pyspark import TaskContext

from shardq.base.clock import microseconds
from shardq.spark.columns import Columns
from shardq.spark.connection import task_context
from shardq.spark.lifeline import check_lifeline
from shardq.spark.options import SendOptions
from shardq.spark.parts import parts_of
from shardq.spark.run_parts import RunPart
from shardq.spark.runs import Run
from shardq.spark.throttle import Throttle
from shardq.topics.envelopes import packed

__all__ = ["send_partition"]

BUNDLE_BYTES = 262_144


def send_partition(
    batches: Iterable[pa.RecordBatch], columns: Columns, options: SendOptions, run: str, execution: str = ""
) -> tuple[int, int]:
    """Send the rows of this task's partition; returns how many there are and how many of them were stored now.

    ``execution`` names what all attempts of one execution of the run have in common; empty: whatever executes it has
    to have the same rows.
    """
    task = TaskContext.get()
    partition = task.partitionId() if task is not None else 0
    parts = parts_of(batches, columns, options, partition=partition, start=_start(run))
    in_order = options.shard_by == "key" or columns.group is not None
    in_flight = 1 if in_order else options.concurrent_writes
    throttle = Throttle(options.throughput_rows_per_sec)
    publishes = options.topic is not None
    with task_context(options) as context:
        sender = Run(
            context,
            run,
            window=microseconds(options.replay_window_seconds),
            bundle_messages=1 if publishes else options.bundle_messages,
            bundle_bytes=BUNDLE_BYTES,
            pace=_at_once if publishes else throttle.pass_through,
            execution=execution,
        )
        send = partial(_publish, sender, throttle) if publishes else sender.send
        return _send_all(send, _while_wanted(parts), in_flight)


def _start(run: str) -> int:
    """Where a run begins to turn through the shards: small runs must not all begin at the same one."""
    return sum(run.encode()) % 4_096


def _while_wanted(parts: Iterator[RunPart]) -> Iterator[RunPart]:
    for part in parts:
        check_lifeline()
        yield part


def _at_once(_: int) -> None:
    """Not wait: what the run has to send are envelopes, and a rate is one of rows."""


def _publish(run: Run, throttle: Throttle, part: RunPart) -> int:
    """Store a part in the log of a topic; returns how many rows were stored now."""
    throttle.pass_through(len(part.bodies))
    return len(part.bodies) if run.send(_in_envelopes(part)) else 0


def _in_envelopes(part: RunPart) -> RunPart:
    """Return the part as messages of a topic's log, the same ones in every attempt; raises MessageTooLarge."""
    headers = part.headers or [None] * len(part.bodies)
    made = list(packed(zip(part.bodies, headers, strict=True)))
    return msgspec.structs.replace(
        part, bodies=[each.body for each in made], headers=[each.headers for each in made]
    )


def _send_all(send: Callable[[RunPart], int], parts: Iterator[RunPart], in_flight: int) -> tuple[int, int]:
    rows = stored = 0
    waiting: set[Future[int]] = set()
    with ThreadPoolExecutor(in_flight, thread_name_prefix="shardq-send") as pool:
        for part in parts:
            rows += len(part.bodies)
            if len(waiting) >= in_flight:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                stored += sum(future.result() for future in done)
            waiting.add(pool.submit(send, part))
        stored += sum(future.result() for future in waiting)
    return rows, stored
