"""Slices of messages as Arrow record batches, and their columns."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np
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

from shardq.base.receipt import MessageId
from shardq.base.shard import Shard
from shardq.core.held import HeldSlice
from shardq.errors import InvalidSetting
from shardq.spark.bodies import CORRUPT, BodyReader, arrow_type, body_type
from shardq.spark.options import BrowseOptions, RowOptions
from shardq.storage.bundles import BundleData, decode_bundle
from shardq.storage.requests import StoredSlice

__all__ = [
    "Piece",
    "arrow_schema",
    "batches_of",
    "check_schema",
    "piece_of_claim",
    "piece_of_view",
    "schema_of",
]

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
BATCH_MESSAGES = 10_000
BATCH_BYTES = 8 * 1024 * 1024
_NO_BODIES = BundleData([])


def schema_of(options: RowOptions) -> StructType:
    """Return the columns of a reader; raises InvalidSetting for those that cannot be had."""
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
    """Return the same columns for Arrow."""
    return pa.schema([(field.name, arrow_type(field.dataType)) for field in schema.fields])


def check_schema(given: StructType, own: StructType) -> None:
    """Raise InvalidSetting when a caller gave the reader another schema than its own."""
    if given.simpleString() != own.simpleString():
        raise InvalidSetting(
            f"the schema of a queue is {own.simpleString()}: leave .schema(...) out and select afterwards"
        )


_encoder = msgspec.msgpack.Encoder()


class Piece(msgspec.Struct, frozen=True):
    """Neighbouring messages of one bundle, and their common fields."""

    shard: Shard
    bundle_id: bytes
    first: int
    count: int
    messages: BundleData
    size: int
    priority: int
    due: int
    enqueued_at: int
    deliveries: int
    state: str
    token: bytes | None = None


def piece_of_claim(held: HeldSlice) -> Piece:
    """Make a piece of messages that are held under a claim."""
    bundle = held.bundle
    return Piece(
        held.shard, bundle.id, held.first, held.count, held.messages, len(bundle.data), bundle.priority,
        bundle.due, bundle.enqueued_at, held.deliveries, "in_flight", held.token,
    )  # fmt: skip


def piece_of_view(shard: Shard, stored: StoredSlice) -> Piece:
    """Make a piece of messages that were read, maybe without their bodies."""
    bundle = stored.bundle
    messages = _NO_BODIES
    if bundle.data:
        first = MessageId(shard, bundle.id, stored.first)
        messages = decode_bundle(bundle.data, first).slice(stored.first, stored.count)
    return Piece(
        shard, bundle.id, stored.first, stored.count, messages, len(bundle.data), bundle.priority,
        stored.due, bundle.enqueued_at, stored.deliveries, stored.state.value,
    )  # fmt: skip


def batches_of(pieces: Iterable[Piece], schema: pa.Schema, reader: BodyReader) -> Iterator[pa.RecordBatch]:
    """Record batches of bounded size with the columns of a schema."""
    waiting: list[Piece] = []
    messages = size = 0
    for piece in pieces:
        waiting.append(piece)
        messages, size = messages + piece.count, size + piece.size
        if messages >= BATCH_MESSAGES or size >= BATCH_BYTES:
            yield _batch(waiting, schema, reader)
            waiting, messages, size = [], 0, 0
    if waiting:
        yield _batch(waiting, schema, reader)


def _batch(pieces: list[Piece], schema: pa.Schema, reader: BodyReader) -> pa.RecordBatch:
    counts = [piece.count for piece in pieces]
    which = np.repeat(np.arange(len(pieces)), counts)
    places = np.concatenate([np.arange(piece.first, piece.first + piece.count) for piece in pieces])
    typed = not {"body", CORRUPT}.isdisjoint(schema.names)
    made = _of_bodies(pieces, places, which, reader) if typed else {}
    columns = [
        made[field.name] if field.name in made else _column(pieces, field, which, places) for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(pieces: list[Piece], field: pa.Field, which: Any, places: Any) -> pa.Array:
    """Build a column, given the piece of each message and its place in the bundle."""
    match field.name:
        case "headers":
            return _headers(pieces, field.type)
        case "dedupe_key":
            keys = [key for piece in pieces for key in piece.messages.dedupe_keys or [None] * piece.count]
            return pa.array(keys, field.type)
        case "id":
            return _ids(pieces, places, which)
        case "receipt":
            return _joined([_prefix(piece) for piece in pieces], places, list(map(_suffix, pieces)), which)
        case "shard" | "state":
            texts = [str(getattr(piece, field.name)) for piece in pieces]
            return pa.array(texts, field.type).take(pa.array(which))
        case name:
            numbers = np.array([getattr(piece, name) for piece in pieces], dtype=np.int64)
            return pa.array(numbers[which]).cast(field.type)


def _of_bodies(pieces: list[Piece], places: Any, which: Any, reader: BodyReader) -> dict[str, pa.Array]:
    bodies = [body for piece in pieces for body in _bodies(piece.messages)]
    return reader.columns(bodies, partial(_ids, pieces, places, which))


def _ids(pieces: list[Piece], places: Any, which: Any) -> pa.Array:
    return _joined([_prefix(piece) for piece in pieces], places, [""] * len(pieces), which)


def _bodies(messages: BundleData) -> Sequence[bytes | None]:
    """Return the bodies; null for a large one, which is read by its message's id."""
    return messages.bodies if messages.large is None else [None]


def _prefix(piece: Piece) -> str:
    return f"{piece.shard}:{piece.bundle_id.hex()}:"


def _suffix(piece: Piece) -> str | None:
    return None if piece.token is None else f":{piece.token.hex()}"


def _joined(prefixes: list[str], places: Any, suffixes: list[str | None], which: Any) -> pa.Array:
    """Join prefix, place and suffix of each message; null where the suffix is."""
    from pyarrow import compute  # noqa: PLC0415 - slow, and for tasks that read only

    rows = pa.array(which)
    parts = [pa.array(prefixes).take(rows), pa.array(places).cast(pa.string())]
    return compute.binary_join_element_wise(*parts, pa.array(suffixes, pa.string()).take(rows), "")


def _headers(pieces: list[Piece], kind: pa.DataType) -> pa.Array:
    found = [one for piece in pieces for one in piece.messages.headers or [None] * piece.count]
    if pa.types.is_binary(kind):
        return pa.array([_encoder.encode(one) if one else None for one in found], kind)
    texts = [[(name, _text(value)) for name, value in (one or {}).items()] for one in found]
    return pa.array(texts, kind)


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return str(value).lower() if isinstance(value, bool) else str(value)
