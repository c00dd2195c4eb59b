"""A task of a sink: it sends its rows in parts, bounded in number and rate, while its executor waits.

When a step before the sink fails, Spark closes the connection to the sink's Python worker and does not end the worker.
An Arrow stream that is cut off between two batches looks like one that has ended. So the worker would take the rows
that came until then for the whole partition. The connection distinguishes the two: at a true end the executor keeps it
open, waiting for the result.
"""

from __future__ import annotations

import inspect
import select
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial

import pyarrow as pa
from pyspark import TaskContext

from shardq.base.clock import microseconds
from shardq.base.log import Log
from shardq.errors import ShardqError
from shardq.spark.columns import Columns
from shardq.spark.connection import task_context
from shardq.spark.options import SendOptions
from shardq.spark.parts import PartCutter, RunPart
from shardq.spark.runs import BegunPart, Run

__all__ = ["TaskAbandoned", "Throttle", "send_partition"]

_log = Log(__name__)

_NAMES = ("outfile", "sock_file")  # of the connection, in the functions of pyspark.worker that called us
BUNDLE_BYTES = 262_144


class TaskAbandoned(ShardqError):
    """Raised in a task whose result is not awaited any more; its rows may be a part of the partition only."""


def check_lifeline() -> None:
    """Raise TaskAbandoned when the executor has given this task up. For the thread that runs the task."""
    descriptor = _connection()
    if descriptor is None:
        if TaskContext.get() is not None:
            _log.warning("this version of PySpark does not show whether an executor still waits for its task")
        return
    poll = select.poll()
    poll.register(descriptor, select.POLLRDHUP | select.POLLHUP | select.POLLERR)
    if poll.poll(0):
        raise TaskAbandoned("Spark has given this task up: nothing more of it is sent")


def _connection() -> int | None:
    """Return the file descriptor of the connection to the executor."""
    frame = inspect.currentframe()
    while frame is not None:
        for name in _NAMES:
            found = frame.f_locals.get(name)
            if found is not None and hasattr(found, "fileno"):
                return int(found.fileno())
        frame = frame.f_back
    return None


class Throttle:
    """Lets rows through at a rate, the first ones at once; ``None`` lets them all through. Safe for threads.

    At any moment no more than elapsed seconds x rate have been let through, and the rows that passed last.
    """

    def __init__(
        self,
        rows_per_second: float | None,
        *,
        timer: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate, self._timer, self._sleep = rows_per_second, timer, sleep
        self._lock = threading.Lock()
        self._free_at = timer()

    def pass_through(self, rows: int) -> None:
        """Wait until ``rows`` rows may be sent."""
        if self._rate is None:
            return
        with self._lock:
            now = self._timer()
            begin = max(self._free_at, now)
            self._free_at = begin + rows / self._rate
        if begin > now:
            self._sleep(begin - now)


def send_partition(
    batches: Iterable[pa.RecordBatch], columns: Columns, options: SendOptions, run: str, execution: str = ""
) -> tuple[int, int]:
    """Send the rows of this task's partition; returns how many there are and how many of them were stored now.

    ``execution`` is a name for all attempts of one execution of the run; empty: every execution has to have the same
    rows.
    """
    task = TaskContext.get()
    partition = task.partitionId() if task is not None else 0
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
            in_envelopes=publishes,
        )
        parts = PartCutter(batches, columns, options, partition=partition, start=_start(run))
        again = None if columns.id is None else parts.again  # otherwise the same rows have the same sizes
        store = partial(_publish, sender, throttle) if publishes else sender.store
        rows, stored = _send_all(parts, partial(_begin, sender, again), store, in_flight)
        if not rows:
            check_lifeline()
            sender.begin_nothing(partition)
        return rows, stored


def _start(run: str) -> int:
    """Return where a run begins to turn through the shards: small runs must not all begin at the same one."""
    return sum(run.encode()) % 4_096


def _begin(run: Run, again: Callable[[int], RunPart] | None, part: RunPart) -> BegunPart:
    """Begin a part, if the task is wanted."""
    check_lifeline()
    return run.begin(part, again)


def _at_once(_: int) -> None:
    """Return at once: the run has to send envelopes, and a rate is one of rows."""


def _publish(run: Run, throttle: Throttle, begun: BegunPart) -> int:
    """Store a part in the log of a topic; returns how many rows were stored now."""
    throttle.pass_through(len(begun.part.bodies))
    return run.store(begun)


def _send_all(
    parts: Iterable[RunPart],
    begin: Callable[[RunPart], BegunPart],
    store: Callable[[BegunPart], int],
    in_flight: int,
) -> tuple[int, int]:
    """Begin one part after the other, each when it can be stored at once."""
    rows = stored = 0
    waiting: set[Future[int]] = set()
    with ThreadPoolExecutor(in_flight, thread_name_prefix="shardq-send") as pool:
        for part in parts:
            if len(waiting) >= in_flight:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                stored += sum(future.result() for future in done)
            begun = begin(part)
            rows += len(begun.part.bodies)
            waiting.add(pool.submit(store, begun))
        stored += sum(future.result() for future in waiting)
    return rows, stored
