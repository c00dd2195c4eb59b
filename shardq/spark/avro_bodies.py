"""Bodies in Avro: their columns, and the decoder of one body, both out of the schema that it was written with.

The types are those of Spark's ``from_avro``. Bodies come from other systems, so the reader trusts nothing in them. A
body that is cut off, that continues behind its end, or that has a value which its type does not have is refused, and
never read as something else. The reader fastavro takes branches and symbols with negative numbers, and decimals with
more digits than they have.
"""

from __future__ import annotations

import decimal
import json
import re
from collections.abc import Callable
from typing import Any

from pyspark.sql.types import (
    BinaryType,
    DecimalType,
    DoubleType,
    LongType,
    StringType,
    StructType,
)

from shardq.errors import InvalidSetting
from shardq.spark.avro_values import (
    LOGICAL,
    PLAIN,
    Body,
    Kind,
    Read,
    array_of,
    map_of,
    number_within,
    read_bytes,
    struct_of,
    union_of,
)

__all__ = ["AVRO_EXAMPLE", "avro_columns", "avro_decoder"]

AVRO_EXAMPLE = """'{"type": "record", "name": "Order", "fields": [{"name": "amount", "type": "double"}]}'"""

_WIDE = decimal.Context(prec=80)  # nothing is rounded
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)


def avro_columns(text: str) -> StructType:
    """Return the columns of a schema in JSON; raises InvalidSetting naming the place in it."""
    columns = _kind_of(text).spark
    assert isinstance(columns, StructType)
    return columns


def avro_decoder(text: str) -> Callable[[bytes], Any]:
    """Make a decoder of one body; it raises ValueError or IndexError for one that was not written with this schema."""
    read = _kind_of(text).read

    def decode(body: bytes) -> Any:
        left = Body(body)
        value = read(left)
        if left.left:
            raise ValueError(f"{left.left} bytes are left behind the end")
        return value

    return decode


def _kind_of(text: str) -> Kind:
    try:
        kind = _Schema().kind(json.loads(text), "", "")
    except ValueError as error:
        raise _wrong("", f"it is not JSON ({error})") from error
    except RecursionError as error:
        raise _wrong("", "it is nested too deeply") from error
    if not isinstance(kind.spark, StructType):
        raise _wrong("", "it is not a record")
    return kind


def _wrong(place: str, what: str) -> InvalidSetting:
    where = f" at {place!r}" if place else ""
    return InvalidSetting(
        f"option bodySchema cannot be read as a schema of Avro{where}: {what}; give the one that the bodies were "
        f"written with, such as {AVRO_EXAMPLE}"
    )


class _Schema:
    """Reads a schema. It knows the named types that it has come by, and those that it is in."""

    def __init__(self) -> None:
        self._named: dict[str, Kind | None] = {}  # None: the type is not at its end yet

    def kind(self, schema: Any, place: str, space: str) -> Kind:
        """Read a type at a place of the schema, in a namespace; raises InvalidSetting."""
        if isinstance(schema, list):
            return self._union(schema, place, space)
        if isinstance(schema, str):
            return PLAIN[schema] if schema in PLAIN else self._known(schema, place, space)
        if isinstance(schema, dict):
            return self._object(schema, place, space)
        raise _wrong(place, f"{_short(schema)} is not a type")

    def _object(self, schema: dict[str, Any], place: str, space: str) -> Kind:
        kind = schema.get("type")
        match kind:
            case "record":
                return self._record(schema, place, space)
            case "enum" | "fixed":
                name, _ = self._name(schema, place, space)
                self._named[name] = made = _enum(schema, place) if kind == "enum" else _fixed(schema, place)
                return made
            case "array":
                return array_of(self.kind(schema.get("items"), f"{place}[]", space))
            case "map":
                return map_of(self.kind(schema.get("values"), f"{place}[]", space))
            case str() if kind in PLAIN:
                return _logical(schema, kind, place)
            case str() | list() | dict():
                return self.kind(kind, place, space)
        raise _wrong(place, f"{_short(schema)} has no type")

    def _known(self, name: str, place: str, space: str) -> Kind:
        """Find a type by the name that it has in a namespace, or else outside of all."""
        for full in (_full(name, space), name):
            if full in self._named:
                found = self._named[full]
                if found is None:
                    raise _wrong(place, f"{name!r} is in itself, which Spark's types cannot be")
                return found
        raise _wrong(place, f"there is no type {_short(name)}")

    def _name(self, schema: dict[str, Any], place: str, space: str) -> tuple[str, str]:
        """Return the full name of a type that begins here, and its namespace."""
        name, own = schema.get("name"), schema.get("namespace", space)
        if not isinstance(name, str) or not _NAME.fullmatch(name) or not isinstance(own, str):
            raise _wrong(place, f"{_short(name)} is not a name")
        full = _full(name, own)
        if full in self._named or full in PLAIN:
            raise _wrong(place, f"there is a type {full!r} already")
        return full, full.rpartition(".")[0]

    def _record(self, schema: dict[str, Any], place: str, space: str) -> Kind:
        name, inner = self._name(schema, place, space)
        self._named[name] = None
        fields = schema.get("fields")
        if not isinstance(fields, list) or not fields:
            raise _wrong(place, f"record {name!r} has no fields")
        kinds: dict[str, Kind] = {}
        for field in fields:
            column = field.get("name") if isinstance(field, dict) else None
            if not isinstance(column, str) or not column:
                raise _wrong(place, f"field {_short(field)} has no name")
            if column.lower() in map(str.lower, kinds):
                raise _wrong(place, f"record {name!r} has field {column!r} twice")
            kinds[column] = self.kind(field.get("type"), f"{place}.{column}".lstrip("."), inner)
        self._named[name] = made = struct_of(kinds)
        return made

    def _union(self, schema: list[Any], place: str, space: str) -> Kind:
        """Read a union: a type or null; or numbers, as the type that holds all of them."""
        kinds = [None if branch == "null" else self.kind(branch, place, space) for branch in schema]
        types = {kind.spark.simpleString(): kind.spark for kind in kinds if kind is not None}
        if types.keys() == {"int", "bigint"} or types.keys() == {"float", "double"}:
            return union_of(LongType() if "bigint" in types else DoubleType(), kinds)
        if len([kind for kind in kinds if kind is not None]) != 1:
            raise _wrong(
                place,
                f"{_short(schema)} is not one type or null: read the bodies with bodyFormat=binary, and parse them "
                "with Spark's from_avro",
            )
        return union_of(next(iter(types.values())), kinds)


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _short(schema: Any) -> str:
    return json.dumps(schema)[:60]


def _logical(schema: dict[str, Any], plain: str, place: str) -> Kind:
    """Return the kind of a logical type; one that Spark does not know either is the plain type."""
    name = schema.get("logicalType")
    if plain == "bytes" and name == "decimal":
        return _decimal(schema, read_bytes, place)
    return LOGICAL.get((plain, name), PLAIN[plain]) if isinstance(name, str) else PLAIN[plain]


def _fixed(schema: dict[str, Any], place: str) -> Kind:
    size = schema.get("size")
    if type(size) is not int or size < 1:
        raise _wrong(place, f"a fixed of {_short(size)} bytes")

    def read(body: Body) -> bytes:
        return body.take(size)

    if schema.get("logicalType") == "decimal":
        return _decimal(schema, read, place)
    return Kind(BinaryType(), read)


def _decimal(schema: dict[str, Any], unscaled: Read, place: str) -> Kind:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if (
        type(precision) is not int
        or type(scale) is not int
        or not 0 <= scale <= precision <= 38
        or not precision
    ):
        raise _wrong(
            place, f"a decimal of {_short(precision)} digits, {_short(scale)} of them behind the point"
        )
    most = 10**precision

    def read(body: Body) -> decimal.Decimal:
        number = int.from_bytes(unscaled(body), "big", signed=True)
        if not -most < number < most:
            raise ValueError(f"a decimal has more than {precision} digits")
        return _WIDE.scaleb(decimal.Decimal(number), -scale)

    return Kind(DecimalType(precision, scale), read)


def _enum(schema: dict[str, Any], place: str) -> Kind:
    symbols = schema.get("symbols")
    if not isinstance(symbols, list) or not symbols or not all(isinstance(one, str) for one in symbols):
        raise _wrong(place, f"{_short(symbols)} are no symbols of an enum")
    number = number_within(0, len(symbols) - 1)
    return Kind(StringType(), lambda body: symbols[number(body)])
