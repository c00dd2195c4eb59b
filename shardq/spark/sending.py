"""What a task of a sink does: sends its rows in parts, a bounded number of them at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

import pyarrow as pa
from pyspark import TaskContext

from shardq.clock import microseconds
from shardq.sending.run_parts import RunPart
from shardq.sending.runs import Run
from shardq.spark.columns import Columns
from shardq.spark.connection import task_context
from shardq.spark.lifeline import check_lifeline
from shardq.spark.options import SendOptions
from shardq.spark.parts import parts_of
from shardq.spark.throttle import Throttle

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
    with task_context(options) as context:
        sender = Run(
            context,
            run,
            window=microseconds(options.replay_window_seconds),
            bundle_messages=options.bundle_messages,
            bundle_bytes=BUNDLE_BYTES,
            pace=Throttle(options.throughput_rows_per_sec).pass_through,
            execution=execution,
        )
        return _send_all(sender, _while_wanted(parts), in_flight)


def _start(run: str) -> int:
    """Where a run begins to turn through the shards: small runs must not all begin at the same one."""
    return sum(run.encode()) % 4_096


def _while_wanted(parts: Iterator[RunPart]) -> Iterator[RunPart]:
    for part in parts:
        check_lifeline()
        yield part


def _send_all(sender: Run, parts: Iterator[RunPart], in_flight: int) -> tuple[int, int]:
    rows = stored = 0
    waiting: set[Future[int]] = set()
    with ThreadPoolExecutor(in_flight, thread_name_prefix="shardq-send") as pool:
        for part in parts:
            rows += len(part.bodies)
            if len(waiting) >= in_flight:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                stored += sum(future.result() for future in done)
            waiting.add(pool.submit(sender.send, part))
        stored += sum(future.result() for future in waiting)
    return rows, stored
