"""Which column has which role, and who the rows are: the same number for each in every attempt."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DecimalType,
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

__all__ = ["columns_by_role", "hash_of", "mixed", "nulls", "numbers_of", "objects", "with_different_ids"]

_WHOLE = (ByteType, ShortType, IntegerType, LongType)
_BYTES = (StringType, BinaryType)
_NAMES = (StringType, *_WHOLE)
_SECONDS = (FloatType, DoubleType, DecimalType, *_WHOLE)
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
    "delay": (_SECONDS, "give seconds: cast it to double"),
    "ttl": (_SECONDS, "give seconds: cast it to double"),
    "group": (_NAMES, "cast it to string"),
    "dedupe_key": (_NAMES, "cast it to string"),
    "unique_key": (_NAMES, "cast it to string"),
    "subject": ((StringType,), "cast it to string"),
}
_OF_TOPICS = frozenset({"body", "id", "headers", "subject"})
_OF_QUEUES = frozenset(_ROLES) - {"subject"}
# Readers make them, and tables often have an `id` of other things: rows would be taken for repetitions, and be lost.
_ONLY_IF_NAMED = {"dedupe_key", "id"}


def columns_by_role(
    schema: StructType, chosen: Mapping[str, str | None], *, topic: str | None
) -> dict[str, str | None]:
    """Return the column of each role, None where the rows have none; ``chosen`` are the options.

    Raises InvalidSetting naming the first column that is missing, would be lost, or is of a type that the role does
    not take. It also names the first option that a queue, or a topic, has no role for.
    """
    what, roles = ("queue", _OF_QUEUES) if topic is None else ("topic", _OF_TOPICS)
    takes = f"a {what} takes {', '.join(role for role in _ROLES if role in roles)}"
    for role, name in chosen.items():
        if name is not None and role not in roles:
            raise InvalidSetting(
                f"column {name!r} cannot be the {role} of a row: {takes}; leave the option out"
            )
    found = {role: _find(schema, role, chosen[role]) if role in roles else None for role in _ROLES}
    _check_rest(schema, {name for name in found.values() if name}, roles, takes)
    return found


def _find(schema: StructType, role: str, chosen: str | None) -> str | None:
    if chosen is None and role in _ONLY_IF_NAMED:
        return None
    name = chosen or role
    types, remedy = _ROLES[role]
    if name not in schema.fieldNames():
        if chosen is None:
            return None
        have, (first, *rest) = ", ".join(schema.fieldNames()), role.split("_")
        option = f"{first}{''.join(word.capitalize() for word in rest)}Column"
        raise InvalidSetting(
            f"the rows have no column {name!r} for the {role}: they have {have}; name one with {option}"
        )
    kind = schema[name].dataType
    if not isinstance(kind, types) or not _is_header(role, kind):
        raise InvalidSetting(f"column {name!r} is {kind.simpleString()}, it cannot be the {role}: {remedy}")
    return name


def _is_header(role: str, kind: DataType) -> bool:
    if role != "headers" or not isinstance(kind, MapType):
        return True
    return isinstance(kind.keyType, StringType) and isinstance(kind.valueType, _HEADER)


def _check_rest(schema: StructType, used: Collection[str], roles: Collection[str], takes: str) -> None:
    for name in schema.fieldNames():
        if name not in used and name not in _MADE_BY_READERS and name not in roles:
            raise InvalidSetting(
                f"column {name!r} would be lost: {takes}; drop it, "
                "name it by an option such as bodyColumn, or put it into the body with to_json(struct(...))"
            )


def with_different_ids(batches: Iterable[pa.RecordBatch], name: str | None) -> Iterator[pa.RecordBatch]:
    """Pass batches on; raises InvalidMessage at the second row with the same value in the column of ids, if any.

    Two attempts that have such rows in different orders would look the same. Rows with null are left out: their
    content identifies them.
    """
    seen = np.empty(0, dtype=np.uint64)  # sorted
    for batch in batches:
        if name is not None:
            ids = batch.column(name).drop_null()
            numbers, first = np.unique(hash_of(ids), return_index=True)
            is_repeated = np.ones(len(ids), dtype=bool)
            is_repeated[first] = np.isin(numbers, seen, assume_unique=True)
            for place in np.flatnonzero(is_repeated)[:1].tolist():
                raise InvalidMessage(
                    f"column {name!r} is {ids[place].as_py()!r} in two rows of a task, which idColumn does not allow: "
                    "name a column without repeated values, or leave idColumn out, so that rows are identified by "
                    "their whole content"
                )
            seen = np.sort(np.concatenate([seen, numbers]), kind="stable")  # merges what is sorted already
        yield batch


def objects(column: pa.Array) -> Any:
    """Return the values of a column of strings or bytes, as bytes."""
    if pa.types.is_string(column.type):
        column = column.cast(pa.binary())
    elif pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    return column.to_numpy(zero_copy_only=False)


def hash_of(column: pa.Array) -> Any:
    """Return a number for each value, the same in every process; null counts as a value."""
    if pa.types.is_integer(column.type):
        column = column.cast(pa.string())
    return numbers_of(objects(column))


def numbers_of(values: Any) -> Any:
    """Return a number for each value, the same in every process."""
    from pandas.util import hash_array  # noqa: PLC0415 - slow, and for tasks that send only

    return hash_array(values, categorize=False)


def nulls(column: pa.Array) -> Any:
    """Return where a column is null."""
    return column.is_null().to_numpy(zero_copy_only=False)


def mixed(identities: Any, *columns: Any) -> Any:
    """Mix numbers with the values of other columns, which may be None."""
    for column in columns:
        if column is not None:
            identities = identities * np.uint64(0x9E3779B97F4A7C15) ^ numbers_of(column)
    return identities
