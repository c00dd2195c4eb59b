"""Which column of the rows of a sink has which role, by its name or by an option."""

from __future__ import annotations

from collections.abc import Collection, Mapping

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

from shardq.errors import InvalidSetting

__all__ = ["columns_by_role"]

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

    Raises InvalidSetting naming the first column that is missing, would be lost, or is of a type that the role does not
    take, and the first option that a queue, or a topic, has no role for.
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


def _check_rest(schema: StructType, used: Collection[str], roles: Collection[str], takes: str) -> None:
    for name in schema.fieldNames():
        if name not in used and name not in _MADE_BY_READERS and name not in roles:
            raise InvalidSetting(
                f"column {name!r} would be lost: {takes}; drop it, "
                "name it by an option such as bodyColumn, or put it into the body with to_json(struct(...))"
            )
