"""The columns of what is read, for Spark and for Arrow."""

from __future__ import annotations

from collections.abc import Collection

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
from shardq.spark.bodies import CORRUPT, arrow_type, body_type
from shardq.spark.options import BrowseOptions, RowOptions

__all__ = ["arrow_schema", "check_schema", "schema_of"]

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


def schema_of(options: RowOptions) -> StructType:
    """The columns of a reader; raises InvalidSetting for those that cannot be had."""
    shards = isinstance(options, BrowseOptions) and options.view == "shards"
    columns = dict(_SHARD) if shards else _of_messages(options)
    chosen = tuple(columns) if options.chosen is None else options.chosen
    for place, name in enumerate(chosen):
        if name not in columns:
            raise InvalidSetting(_explain(name, columns))
        if name in chosen[:place]:
            raise InvalidSetting(f"option columns has {name!r} twice")
    return StructType([StructField(name, columns[name]) for name in chosen])


def _explain(name: str, columns: Collection[str]) -> str:
    if name == "headers":
        return "option columns has 'headers': add option('includeHeaders', 'true'), or 'packed'"
    return f"option columns has {name!r}, which the rows do not have: use {', '.join(columns)}"


def _of_messages(options: RowOptions) -> dict[str, DataType]:
    columns = dict(_MESSAGE)
    columns["body"] = body_type(options)
    if options.body_format != "binary" and options.body_mode == "permissive":
        columns[CORRUPT] = BinaryType()
    if not options.include_body:
        for name in ("body", "dedupe_key", CORRUPT):  # they are kept together
            columns.pop(name, None)
    if options.include_headers == "false":
        del columns["headers"]
    elif options.include_headers == "packed":
        columns["headers"] = BinaryType()
    return columns


def arrow_schema(schema: StructType) -> pa.Schema:
    """The same columns for Arrow."""
    return pa.schema([(field.name, arrow_type(field.dataType)) for field in schema.fields])


def check_schema(given: StructType, own: StructType) -> None:
    """Raise InvalidSetting when a caller gave the reader another schema than its own."""
    if given.simpleString() != own.simpleString():
        raise InvalidSetting(
            f"the schema of a queue is {own.simpleString()}: leave .schema(...) out and select afterwards"
        )
