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
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from shardq.errors import InvalidSetting

__all__ = ["AVRO_EXAMPLE", "avro_columns", "avro_decoder"]

AVRO_EXAMPLE = """'{"type": "record", "name": "Order", "fields": [{"name": "amount", "type": "double"}]}'"""

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_WIDE = decimal.Context(prec=80)  # nothing is rounded
_DAYS = (-719_162, 2_932_896)  # the years 1 to 9999 in Unix time, as Spark has them
_MICROS = (_DAYS[0] * 86_400_000_000, (_DAYS[1] + 1) * 86_400_000_000 - 1)


class _Body:
    """A body that is read from its begin to its end; raises ValueError or IndexError where it has another form."""

    __slots__ = ("_at", "_bytes")

    def __init__(self, body: bytes) -> None:
        self._bytes, self._at = body, 0

    @property
    def left(self) -> int:
        """How many bytes are still to be read."""
        return len(self._bytes) - self._at

    def take(self, count: int) -> bytes:
        """Take the next bytes."""
        start, end = self._at, self._at + count
        if count < 0 or end > len(self._bytes):
            raise ValueError("a value continues behind the end of the body")
        self._at = end
        return self._bytes[start:end]

    def number(self) -> int:
        """Read a whole number of 64 bits: seven in each byte, the lowest first, the sign in the lowest bit."""
        at, found, shift = self._at, 0, 0
        byte = 0x80
        while byte > 0x7F and shift < 70:
            byte = self._bytes[at]
            found |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
        if byte > 0x7F or found >> 64:
            raise ValueError("a whole number has more than 64 bits")
        self._at = at
        return (found >> 1) ^ -(found & 1)


_Read = Callable[[_Body], Any]


class _Kind(NamedTuple):
    """A type of the schema: Spark's type, and the reader of a value."""

    spark: DataType
    read: _Read


def avro_columns(text: str) -> StructType:
    """Return the columns of a schema in JSON; raises InvalidSetting naming the place in it."""
    columns = _kind_of(text).spark
    assert isinstance(columns, StructType)
    return columns


def avro_decoder(text: str) -> Callable[[bytes], Any]:
    """Make a decoder of one body; it raises ValueError or IndexError for one that was not written with this schema."""
    read = _kind_of(text).read

    def decode(body: bytes) -> Any:
        left = _Body(body)
        value = read(left)
        if left.left:
            raise ValueError(f"{left.left} bytes are left behind the end")
        return value

    return decode


def _kind_of(text: str) -> _Kind:
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
        self._named: dict[str, _Kind | None] = {}  # None: the type is not at its end yet

    def kind(self, schema: Any, place: str, space: str) -> _Kind:
        """Read a type at a place of the schema, in a namespace; raises InvalidSetting."""
        if isinstance(schema, list):
            return self._union(schema, place, space)
        if isinstance(schema, str):
            return _PLAIN[schema] if schema in _PLAIN else self._known(schema, place, space)
        if isinstance(schema, dict):
            return self._object(schema, place, space)
        raise _wrong(place, f"{_short(schema)} is not a type")

    def _object(self, schema: dict[str, Any], place: str, space: str) -> _Kind:
        kind = schema.get("type")
        match kind:
            case "record":
                return self._record(schema, place, space)
            case "enum" | "fixed":
                name, _ = self._name(schema, place, space)
                self._named[name] = made = _enum(schema, place) if kind == "enum" else _fixed(schema, place)
                return made
            case "array":
                return _array(self.kind(schema.get("items"), f"{place}[]", space))
            case "map":
                return _map(self.kind(schema.get("values"), f"{place}[]", space))
            case str() if kind in _PLAIN:
                return _logical(schema, kind, place)
            case str() | list() | dict():
                return self.kind(kind, place, space)
        raise _wrong(place, f"{_short(schema)} has no type")

    def _known(self, name: str, place: str, space: str) -> _Kind:
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
        if full in self._named or full in _PLAIN:
            raise _wrong(place, f"there is a type {full!r} already")
        return full, full.rpartition(".")[0]

    def _record(self, schema: dict[str, Any], place: str, space: str) -> _Kind:
        name, inner = self._name(schema, place, space)
        self._named[name] = None
        fields = schema.get("fields")
        if not isinstance(fields, list) or not fields:
            raise _wrong(place, f"record {name!r} has no fields")
        kinds: dict[str, _Kind] = {}
        for field in fields:
            column = field.get("name") if isinstance(field, dict) else None
            if not isinstance(column, str) or not column:
                raise _wrong(place, f"field {_short(field)} has no name")
            if column.lower() in map(str.lower, kinds):
                raise _wrong(place, f"record {name!r} has field {column!r} twice")
            kinds[column] = self.kind(field.get("type"), f"{place}.{column}".lstrip("."), inner)
        self._named[name] = made = _struct(kinds)
        return made

    def _union(self, schema: list[Any], place: str, space: str) -> _Kind:
        """Read a union: a type or null; or numbers, as the type that holds all of them."""
        kinds = [None if branch == "null" else self.kind(branch, place, space) for branch in schema]
        types = {kind.spark.simpleString(): kind.spark for kind in kinds if kind is not None}
        if types.keys() == {"int", "bigint"} or types.keys() == {"float", "double"}:
            return _branches(LongType() if "bigint" in types else DoubleType(), kinds)
        if len([kind for kind in kinds if kind is not None]) != 1:
            raise _wrong(
                place,
                f"{_short(schema)} is not one type or null: read the bodies with bodyFormat=binary, and parse them "
                "with Spark's from_avro",
            )
        return _branches(next(iter(types.values())), kinds)


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _short(schema: Any) -> str:
    return json.dumps(schema)[:60]


def _text(body: _Body) -> str:
    return str(body.take(body.number()), "utf-8")


def _bytes(body: _Body) -> bytes:
    return body.take(body.number())


def _boolean(body: _Body) -> bool:
    (byte,) = body.take(1)
    if byte > 1:
        raise ValueError(f"{byte} is neither true nor false")
    return bool(byte)


def _float(body: _Body) -> Any:
    return _FLOAT.unpack(body.take(4))[0]


def _double(body: _Body) -> Any:
    return _DOUBLE.unpack(body.take(8))[0]


_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")


def _within(least: int, most: int, step: int = 1) -> _Read:
    """Make a reader of a whole number in a range, times ``step``."""

    def read(body: _Body) -> int:
        number = body.number() * step
        if not least <= number <= most:
            raise ValueError(f"{number} is not in {least}..{most}")
        return number

    return read


_PLAIN: dict[str, _Kind] = {
    "boolean": _Kind(BooleanType(), _boolean),
    "int": _Kind(IntegerType(), _within(-(1 << 31), (1 << 31) - 1)),
    "long": _Kind(LongType(), _Body.number),
    "float": _Kind(FloatType(), _float),
    "double": _Kind(DoubleType(), _double),
    "bytes": _Kind(BinaryType(), _bytes),
    "string": _Kind(StringType(), _text),
}
_LOGICAL: dict[tuple[str, str], _Kind] = {
    ("int", "date"): _Kind(DateType(), _within(*_DAYS)),
    ("long", "timestamp-millis"): _Kind(TimestampType(), _within(*_MICROS, step=1_000)),
    ("long", "timestamp-micros"): _Kind(TimestampType(), _within(*_MICROS)),
    ("long", "local-timestamp-millis"): _Kind(TimestampNTZType(), _within(*_MICROS, step=1_000)),
    ("long", "local-timestamp-micros"): _Kind(TimestampNTZType(), _within(*_MICROS)),
}


def _logical(schema: dict[str, Any], plain: str, place: str) -> _Kind:
    """Return the kind of a logical type; one that Spark does not know either is the plain type."""
    name = schema.get("logicalType")
    if plain == "bytes" and name == "decimal":
        return _decimal(schema, _bytes, place)
    return _LOGICAL.get((plain, name), _PLAIN[plain]) if isinstance(name, str) else _PLAIN[plain]


def _fixed(schema: dict[str, Any], place: str) -> _Kind:
    size = schema.get("size")
    if type(size) is not int or size < 1:
        raise _wrong(place, f"a fixed of {_short(size)} bytes")

    def read(body: _Body) -> bytes:
        return body.take(size)

    if schema.get("logicalType") == "decimal":
        return _decimal(schema, read, place)
    return _Kind(BinaryType(), read)


def _decimal(schema: dict[str, Any], unscaled: _Read, place: str) -> _Kind:
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

    def read(body: _Body) -> decimal.Decimal:
        number = int.from_bytes(unscaled(body), "big", signed=True)
        if not -most < number < most:
            raise ValueError(f"a decimal has more than {precision} digits")
        return _WIDE.scaleb(decimal.Decimal(number), -scale)

    return _Kind(DecimalType(precision, scale), read)


def _enum(schema: dict[str, Any], place: str) -> _Kind:
    symbols = schema.get("symbols")
    if not isinstance(symbols, list) or not symbols or not all(isinstance(one, str) for one in symbols):
        raise _wrong(place, f"{_short(symbols)} are no symbols of an enum")
    number = _within(0, len(symbols) - 1)
    return _Kind(StringType(), lambda body: symbols[number(body)])


def _struct(kinds: dict[str, _Kind]) -> _Kind:
    readers = [(name, kind.read) for name, kind in kinds.items()]

    def read(body: _Body) -> dict[str, Any]:
        return {name: read_field(body) for name, read_field in readers}

    return _Kind(StructType([StructField(name, kind.spark) for name, kind in kinds.items()]), read)


def _branches(spark: DataType, kinds: Sequence[_Kind | None]) -> _Kind:
    number = _within(0, len(kinds) - 1)
    readers = [None if kind is None else kind.read for kind in kinds]

    def read(body: _Body) -> Any:
        chosen = readers[number(body)]
        return None if chosen is None else chosen(body)

    return _Kind(spark, read)


def _array(items: _Kind) -> _Kind:
    def read(body: _Body) -> list[Any]:
        return [value for count in _blocks(body) for value in (items.read(body) for _ in range(count))]

    return _Kind(ArrayType(items.spark), read)


def _map(values: _Kind) -> _Kind:
    def read(body: _Body) -> dict[str, Any]:
        return {_text(body): values.read(body) for count in _blocks(body) for _ in range(count)}

    return _Kind(MapType(StringType(), values.spark), read)


def _blocks(body: _Body) -> Iterator[int]:
    """Yield how many values each block has, while they are read. Each takes a byte at least."""
    while count := body.number():
        left_then = None
        if count < 0:  # then its size in bytes comes first
            size = body.number()
            left_then = body.left - size
        if abs(count) > body.left:
            raise ValueError(f"a block of {count} values continues behind the end of the body")
        yield abs(count)
        if left_then not in (None, body.left):
            raise ValueError("a block does not end where it says")
