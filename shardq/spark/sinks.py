"""The sinks: rows that are sent as messages, and receipts that are acked, released or extended.

A sink is made on the driver, where everything that can be wrong with options and columns is found, and copied to
the tasks.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StringType, StructType

from shardq.base.log import Log
from shardq.core.context.queue_context import QueueContext
from shardq.core.sending.planned_bundles import check_groups
from shardq.core.settling.receipts import (
    ack_receipts,
    dead_letter_receipts,
    extend_receipts,
    release_receipts,
)
from shardq.errors import InvalidReceipt, InvalidSetting, LeaseLost, QueuePaused
from shardq.spark.columns import Columns
from shardq.spark.connection import context_of, task_context
from shardq.spark.options import SendOptions, SettleOptions
from shardq.spark.sending import send_partition

__all__ = [
    "BatchSettler",
    "BatchWriter",
    "StreamSettler",
    "StreamWriter",
    "TaskReport",
    "receipt_column",
    "settle_partition",
]

_log = Log(__name__)


def receipt_column(schema: StructType, options: SettleOptions) -> str:
    """Return the name of the column of receipts; raises InvalidSetting. Other columns are passed over."""
    name = options.receipt_column
    if name not in schema.fieldNames():
        have = ", ".join(schema.fieldNames())
        raise InvalidSetting(
            f"operation={options.operation} needs a column {name!r} of receipts: the rows have {have}"
        )
    if not isinstance(schema[name].dataType, StringType):
        raise InvalidSetting(
            f"column {name!r} is {schema[name].dataType.simpleString()}: receipts are strings"
        )
    return name


def settle_partition(
    batches: Iterable[pa.RecordBatch], column: str, options: SettleOptions
) -> tuple[int, int]:
    """Settle the receipts of this task; returns how many there are and how many of them were still held."""
    with task_context(options) as context:
        return _settle_all(context, batches, column, options)


def _settle_all(
    context: QueueContext, batches: Iterable[pa.RecordBatch], column: str, options: SettleOptions
) -> tuple[int, int]:
    rows = lost = 0
    for batch in batches:
        receipts = batch.column(column).to_numpy(zero_copy_only=False).tolist()
        if batch.column(column).null_count:
            raise InvalidReceipt(f"column {column!r} is null in a row: filter such rows out")
        rows += len(receipts)
        try:
            _settle(context, receipts, options)
        except LeaseLost as error:
            if options.fail_on_lease_loss:
                raise
            lost += len(error.messages)
            _log.warning("%s", error)
    return rows, rows - lost


def _settle(context: QueueContext, receipts: Sequence[str], options: SettleOptions) -> None:
    if options.operation == "ack":
        ack_receipts(context, receipts)
    elif options.operation == "release":
        release_receipts(context, receipts, options.delay_seconds)
    elif options.operation == "dead_letter":
        dead_letter_receipts(context, receipts, options.reason)
    else:
        extend_receipts(context, receipts, options.lease_seconds)


@dataclass
class TaskReport(WriterCommitMessage):
    """The result of a task."""

    rows: int
    done: int  # of them now: sent rows that an earlier attempt had stored, and lost leases, are not counted


class _Sender:
    """The common part of sending in a batch and in a stream."""

    def __init__(self, schema: StructType, options: SendOptions, *, strict: bool) -> None:
        self.options = options
        self.columns = Columns.of(schema, options)
        chosen = options.fail_on_replay_conflict
        strict = strict if chosen is None else chosen
        self._execution = "" if strict else secrets.token_hex(8)
        queue = context_of(options)
        if queue.settings.sends_paused:
            raise QueuePaused(
                f"queue {queue.name!r} accepts no messages: its sends are paused; "
                f"`shardq resume {queue.name}` ends that"
            )
        if self.columns.group is not None:
            check_groups(queue.store, queue.name, f"column {self.columns.group!r}")

    def send(self, iterator: Iterator[pa.RecordBatch], run: str) -> TaskReport:
        """Send a partition."""
        return TaskReport(*send_partition(iterator, self.columns, self.options, run, self._execution))


class BatchWriter(DataSourceArrowWriter):
    """Sends the rows of one job. Messages that a failed job has stored stay stored: it is not one atomic step."""

    def __init__(self, schema: StructType, options: SendOptions, *, overwrite: bool) -> None:
        if overwrite and not options.truncate:
            raise InvalidSetting(
                'mode("overwrite") would remove every message of the queue: write mode("append"), '
                'or allow it with option("truncate", "true")'
            )
        if overwrite and options.topic is not None:
            raise InvalidSetting(
                f"topic {options.topic!r} cannot be overwritten: publish with mode('append')"
            )
        self._sender = _Sender(schema, options, strict=True)
        self._run = options.run_id or secrets.token_hex(8)
        if overwrite:
            context = context_of(options)
            for shard in context.retry(context.store.shards, context.name):
                context.retry(context.store.purge, shard)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReport:
        """Send the rows of a task."""
        return self._sender.send(iterator, self._run)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Report that the job failed."""
        stored = sum(message.done for message in messages if isinstance(message, TaskReport))
        _log.warning("the job failed; finished tasks had stored %d messages, which stay", stored)


class StreamWriter(DataSourceStreamArrowWriter):
    """Sends the rows of each micro-batch as a separate run, named by the query and the batch.

    Spark makes one for each execution of a batch.
    """

    def __init__(self, schema: StructType, options: SendOptions) -> None:
        if options.run_id is not None:
            raise InvalidSetting(
                f"option runId={options.run_id!r} is for batch jobs: leave it out, as the runs of a stream are named "
                "by its checkpoint"
            )
        self._sender = _Sender(schema, options, strict=False)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReport:
        """Send the rows of a task."""
        task = TaskContext.get()
        assert task is not None
        query, batch = (
            task.getLocalProperty("sql.streaming.queryId"),
            task.getLocalProperty("streaming.sql.batchId"),
        )
        if query is None or batch is None:
            raise InvalidSetting(
                "Spark does not name the micro-batch of this task, so its rows could not be told from those of another "
                "batch: write them in foreachBatch, with option runId"
            )
        return self._sender.send(iterator, f"{query}.{batch}")

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: nothing is left to do."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Undo nothing: the batch is sent again under the same name."""


class _Settler:
    """The common part of settling in a batch and in a stream."""

    def __init__(self, schema: StructType, options: SettleOptions) -> None:
        self.options = options
        self.column = receipt_column(schema, options)
        context_of(options)

    def settle(self, iterator: Iterator[pa.RecordBatch]) -> TaskReport:
        """Settle a partition."""
        return TaskReport(*settle_partition(iterator, self.column, self.options))


class BatchSettler(DataSourceArrowWriter):
    """Acks, releases, extends or dead-letters the receipts of one job."""

    def __init__(self, schema: StructType, options: SettleOptions, *, overwrite: bool) -> None:
        if overwrite:
            raise InvalidSetting(f'operation={options.operation} writes mode("append")')
        self._settler = _Settler(schema, options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReport:
        """Settle the receipts of a task."""
        return self._settler.settle(iterator)


class StreamSettler(DataSourceStreamArrowWriter):
    """Acks, releases, extends or dead-letters the receipts of each micro-batch."""

    def __init__(self, schema: StructType, options: SettleOptions) -> None:
        self._settler = _Settler(schema, options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReport:
        """Settle the receipts of a task."""
        return self._settler.settle(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: nothing is left to do."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Undo nothing: settling again is harmless."""
