"""A task with receipts: it acks, releases, extends or dead-letters them, batch by batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
from pyspark.sql.types import StringType, StructType

from shardq.base.log import Log
from shardq.core.context.queue_context import QueueContext
from shardq.core.settling.receipts import (
    ack_receipts,
    dead_letter_receipts,
    extend_receipts,
    release_receipts,
)
from shardq.errors import InvalidReceipt, InvalidSetting, LeaseLost
from shardq.spark.connection import task_context
from shardq.spark.options import SettleOptions

__all__ = ["receipt_column", "settle_partition"]

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
