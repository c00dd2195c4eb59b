"""The columns of what is read, for Spark and for Arrow."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from shardq.errors import InvalidSetting

__all__ = ["VIEWS", "arrow_schema", "check_schema", "schema_of"]

VIEWS = ("messages", "shards", "dead", "history")

_MESSAGE: dict[str, DataType] = {
    "id": StringType(),
    "body": BinaryType(),
    "headers": MapType(StringType(), StringType()),
    "priority": IntegerType(),
    "due": TimestampType(),
    "enqueued_at": TimestampType(),
    "deliveries": IntegerType(),
    "state": StringType(),
    "shard": StringType(),
    "dedupe_key": StringType(),
    "receipt": StringType(),
}
_SHARD: dict[str, DataType] = {
    "shard": StringType(),
    "time_shard": IntegerType(),
    "number": IntegerType(),
    "ready": LongType(),
    "delayed": LongType(),
    "in_flight": LongType(),
    "processed": LongType(),
    "oldest": TimestampType(),
    "age_seconds": DoubleType(),
}
_ARROW = {
    StringType(): pa.string(),
    BinaryType(): pa.binary(),
    IntegerType(): pa.int32(),
    LongType(): pa.int64(),
    DoubleType(): pa.float64(),
    TimestampType(): pa.timestamp("us", tz="UTC"),
    MapType(StringType(), StringType()): pa.map_(pa.string(), pa.string()),
}


def schema_of(view: str, *, body: bool, headers: str) -> StructType:
    """The columns of a view; raises InvalidSetting when there is no such view.

    ``headers`` are left out (false), a map of strings (true), or MessagePack that keeps their types (packed).
    """
    if view not in VIEWS:
        raise InvalidSetting(f"option view={view!r} cannot be used: use one of {', '.join(VIEWS)}")
    if view == "shards":
        return StructType([StructField(name, kind) for name, kind in _SHARD.items()])
    columns = dict(_MESSAGE)
    if not body:
        del columns["body"], columns["dedupe_key"]  # they are kept together
    if headers == "false":
        del columns["headers"]
    elif headers == "packed":
        columns["headers"] = BinaryType()
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def arrow_schema(schema: StructType) -> pa.Schema:
    """The same columns for Arrow."""
    return pa.schema([(field.name, _ARROW[field.dataType]) for field in schema.fields])


def check_schema(given: StructType, own: StructType) -> None:
    """Raise InvalidSetting when a caller gave the reader another schema than its own."""
    if given.simpleString() != own.simpleString():
        raise InvalidSetting(
            f"the schema of a queue is {own.simpleString()}: leave .schema(...) out and select afterwards"
        )
