"""Which columns a sink takes, and a batch of rows as arrays that can be hashed, sorted and sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from shardq.errors import InvalidMessage, InvalidSetting
from shardq.outgoing_message import DEFAULT_PRIORITY, OutgoingMessage
from shardq.sending.prepared import prepare_options
from shardq.spark.options import SendOptions

__all__ = ["NO_DUE", "Columns", "Rows", "headers_of"]

NO_DUE = np.iinfo(np.int64).min

_WHOLE = (ByteType, ShortType, IntegerType, LongType)
_BYTES = (StringType, BinaryType)
_HEADER = (StringType, BinaryType, BooleanType, FloatType, DoubleType, *_WHOLE)
_MADE_BY_READERS = frozenset(
    {"id", "receipt", "state", "shard", "enqueued_at", "deliveries", "processed_at", "dedupe_key", "lease_until",
     "corrupt_body"}
)  # fmt: skip
_ROLES = {  # default name, types, what to do about another type
    "body": (_BYTES, "cast it to string or binary, or use to_json(struct(...))"),
    "id": ((*_BYTES, *_WHOLE), "cast it to string"),
    "priority": (_WHOLE, "cast it to int"),
    "due": ((TimestampType,), "cast it to timestamp"),
    "headers": ((MapType, BinaryType), "use a map of string to string, numbers, booleans or binary"),
    "key": ((*_BYTES, *_WHOLE), "cast it to string"),
}
_encoder = msgspec.msgpack.Encoder(order="deterministic")
_decoder = msgspec.msgpack.Decoder(dict[str, Any])


class Rows(msgspec.Struct, frozen=True):
    """Rows as arrays of one length. ``headers`` are packed as MessagePack; empty: none."""

    bodies: Any  # of bytes objects
    identities: Any  # uint64: equal for equal rows
    headers: Any = None  # of bytes objects
    priorities: Any = None  # int64
    dues: Any = None  # int64 microseconds, or NO_DUE
    lanes: Any = None  # int64

    def __len__(self) -> int:
        return len(self.bodies)

    @property
    def columns(self) -> tuple[Any, ...]:
        """All arrays."""
        return self.bodies, self.identities, self.headers, self.priorities, self.dues, self.lanes

    def pick(self, where: Any) -> Rows:
        """The rows of a slice, or of an array of places."""
        return Rows(*(None if column is None else column[where] for column in self.columns))

    @classmethod
    def joined(cls, parts: Sequence[Rows]) -> Rows:
        """Rows one after the other."""
        if len(parts) == 1:
            return parts[0]
        columns = zip(*(part.columns for part in parts), strict=True)
        return cls(*(None if column[0] is None else np.concatenate(column) for column in columns))


class Columns(msgspec.Struct, frozen=True):
    """The names of the columns that are read; None: the rows have no such column."""

    body: str
    id: str | None
    priority: str | None
    due: str | None
    headers: str | None
    key: str | None
    queue: str

    @classmethod
    def of(cls, schema: StructType, options: SendOptions) -> Columns:
        """Find the columns; raises InvalidSetting naming the first that is missing, unknown or of another type."""
        chosen = {
            "body": options.body_column, "id": options.id_column, "priority": options.priority_column,
            "due": options.due_column, "headers": options.headers_column, "key": options.key_column,
        }  # fmt: skip
        names = {role: _find(schema, role, chosen[role]) for role in _ROLES}
        if options.shard_by == "key" and names["key"] is None:
            raise InvalidSetting("shardBy=key needs a column 'key': name one with keyColumn")
        _check_rest(schema, {name for name in names.values() if name})
        lane = names["key"] if options.shard_by == "key" else None
        return cls(**(names | {"key": lane}), queue=options.queue)  # type: ignore[arg-type]

    def rows(self, batch: pa.RecordBatch) -> Rows:
        """A batch as arrays; raises InvalidMessage for a null body or a priority, header or due time out of range."""
        bodies = _objects(batch.column(self.body))
        if batch.column(self.body).null_count:
            raise InvalidMessage(f"column {self.body!r} is null in a row: filter such rows out")
        headers = self._headers(batch)
        priorities = None if self.priority is None else _priorities(batch.column(self.priority))
        dues = None if self.due is None else _dues(batch.column(self.due))
        lanes = (
            None if self.key is None else (_hash(batch.column(self.key)) >> np.uint64(33)).astype(np.int64)
        )
        ids = None if self.id is None else batch.column(self.id)
        identities = None if ids is None else _hash(ids)
        if ids is None or ids.null_count:  # a row without an id is known by its content
            whole = _mix(_numbers(bodies), headers, priorities, dues)
            identities = whole if ids is None else np.where(_nulls(ids), whole, identities)
        return Rows(bodies, identities, headers, priorities, dues, lanes)

    def _headers(self, batch: pa.RecordBatch) -> Any:
        if self.headers is None:
            return None
        column = batch.column(self.headers)
        made = _unpacked(column) if pa.types.is_binary(column.type) else _dictionaries(column)
        checked = [
            prepare_options(OutgoingMessage(body=b"", headers=one), self.queue).headers if one else None
            for one in made
        ]
        packed = np.empty(len(checked), dtype=object)
        packed[:] = [_encoder.encode(one) if one else b"" for one in checked]
        return packed


def headers_of(packed: bytes) -> dict[str, Any] | None:
    """Headers as they were packed; raises InvalidMessage."""
    if not packed:
        return None
    try:
        return _decoder.decode(packed)
    except msgspec.MsgspecError as error:
        raise InvalidMessage(f"packed headers {packed[:40]!r} are no MessagePack map: {error}") from error


def _find(schema: StructType, role: str, chosen: str | None) -> str | None:
    name = chosen or role
    types, remedy = _ROLES[role]
    if name not in schema.fieldNames():
        if chosen is None:
            return None
        have = ", ".join(schema.fieldNames())
        raise InvalidSetting(f"the rows have no column {name!r} for the {role}: they have {have}")
    kind = schema[name].dataType
    if not isinstance(kind, types) or not _is_header(role, kind):
        raise InvalidSetting(f"column {name!r} is {kind.simpleString()}, it cannot be the {role}: {remedy}")
    return name


def _is_header(role: str, kind: DataType) -> bool:
    if role != "headers" or not isinstance(kind, MapType):
        return True
    return isinstance(kind.keyType, StringType) and isinstance(kind.valueType, _HEADER)


def _check_rest(schema: StructType, used: set[str]) -> None:
    for name in schema.fieldNames():
        if name not in used and name not in _MADE_BY_READERS and name not in _ROLES:
            raise InvalidSetting(
                f"column {name!r} would be lost: a queue takes body, id, priority, due, headers and key; drop it, "
                "name it by an option such as bodyColumn, or put it into the body with to_json(struct(...))"
            )


def _objects(column: pa.Array) -> Any:
    if pa.types.is_string(column.type):
        column = column.cast(pa.binary())
    elif pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    return column.to_numpy(zero_copy_only=False)


def _hash(column: pa.Array) -> Any:
    """A number for each value, the same in every process; null counts as a value."""
    if pa.types.is_integer(column.type):
        column = column.cast(pa.string())
    return _numbers(_objects(column))


def _numbers(values: Any) -> Any:
    """A number for each value, the same in every process."""
    from pandas.util import hash_array  # noqa: PLC0415 - slow, and for tasks that send only

    return hash_array(values, categorize=False)


def _nulls(column: pa.Array) -> Any:
    return column.is_null().to_numpy(zero_copy_only=False)


def _mix(identities: Any, *columns: Any) -> Any:
    for column in columns:
        if column is not None:
            other = _numbers(column)
            identities = identities * np.uint64(0x9E3779B97F4A7C15) ^ other
    return identities


def _priorities(column: pa.Array) -> Any:
    priorities = column.cast(pa.int64()).fill_null(DEFAULT_PRIORITY).to_numpy()
    wrong = priorities[(priorities < 0) | (priorities > 9)]
    if len(wrong):
        raise InvalidMessage(f"priority {wrong[0]}: give a whole number from 0 (first) to 9 (last)")
    return priorities


def _dues(column: pa.Array) -> Any:
    return column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).fill_null(NO_DUE).to_numpy()


def _dictionaries(column: pa.MapArray) -> list[dict[str, Any] | None]:
    keys, items = column.keys.to_numpy(zero_copy_only=False).tolist(), column.items
    if items.null_count:
        raise InvalidMessage("a header is null: leave it out of the map")
    values = items.to_numpy(zero_copy_only=False).tolist()
    ends = column.offsets.to_pylist()
    present = column.is_valid().to_pylist()
    return [
        dict(zip(keys[start:end], values[start:end], strict=True)) if there else None
        for start, end, there in zip(ends[:-1], ends[1:], present, strict=True)
    ]


def _unpacked(column: pa.Array) -> list[dict[str, Any] | None]:
    return [headers_of(packed) if packed else None for packed in _objects(column)]
