"""Values of bodies in Avro: how each kind of them is read, and its type in Spark.

Bodies come from other systems, so a reader trusts nothing in them. A body that is cut off, or that has a value which
its type does not have, is refused with a ValueError or an IndexError, and never read as something else.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
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

__all__ = [
    "LOGICAL",
    "PLAIN",
    "Body",
    "Kind",
    "Read",
    "array_of",
    "map_of",
    "number_within",
    "read_bytes",
    "struct_of",
    "union_of",
]

_DAYS = (-719_162, 2_932_896)  # the years 1 to 9999 in Unix time, as Spark has them
_MICROS = (_DAYS[0] * 86_400_000_000, (_DAYS[1] + 1) * 86_400_000_000 - 1)
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")


class Body:
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


Read = Callable[[Body], Any]


class Kind(NamedTuple):
    """A type of the schema: Spark's type, and the reader of a value."""

    spark: DataType
    read: Read


def _text(body: Body) -> str:
    return str(body.take(body.number()), "utf-8")


def read_bytes(body: Body) -> bytes:
    """Read bytes behind their number."""
    return body.take(body.number())


def _boolean(body: Body) -> bool:
    (byte,) = body.take(1)
    if byte > 1:
        raise ValueError(f"{byte} is neither true nor false")
    return bool(byte)


def _float(body: Body) -> Any:
    return _FLOAT.unpack(body.take(4))[0]


def _double(body: Body) -> Any:
    return _DOUBLE.unpack(body.take(8))[0]


def number_within(least: int, most: int, step: int = 1) -> Read:
    """Make a reader of a whole number in a range, times ``step``."""

    def read(body: Body) -> int:
        number = body.number() * step
        if not least <= number <= most:
            raise ValueError(f"{number} is not in {least}..{most}")
        return number

    return read


PLAIN: dict[str, Kind] = {
    "boolean": Kind(BooleanType(), _boolean),
    "int": Kind(IntegerType(), number_within(-(1 << 31), (1 << 31) - 1)),
    "long": Kind(LongType(), Body.number),
    "float": Kind(FloatType(), _float),
    "double": Kind(DoubleType(), _double),
    "bytes": Kind(BinaryType(), read_bytes),
    "string": Kind(StringType(), _text),
}
LOGICAL: dict[tuple[str, str], Kind] = {
    ("int", "date"): Kind(DateType(), number_within(*_DAYS)),
    ("long", "timestamp-millis"): Kind(TimestampType(), number_within(*_MICROS, step=1_000)),
    ("long", "timestamp-micros"): Kind(TimestampType(), number_within(*_MICROS)),
    ("long", "local-timestamp-millis"): Kind(TimestampNTZType(), number_within(*_MICROS, step=1_000)),
    ("long", "local-timestamp-micros"): Kind(TimestampNTZType(), number_within(*_MICROS)),
}


def struct_of(kinds: dict[str, Kind]) -> Kind:
    """Return the kind of a record of fields in this order."""
    readers = [(name, kind.read) for name, kind in kinds.items()]

    def read(body: Body) -> dict[str, Any]:
        return {name: read_field(body) for name, read_field in readers}

    return Kind(StructType([StructField(name, kind.spark) for name, kind in kinds.items()]), read)


def union_of(spark: DataType, kinds: Sequence[Kind | None]) -> Kind:
    """Return the kind of a union with these branches, all of one type in Spark; None is null."""
    number = number_within(0, len(kinds) - 1)
    readers = [None if kind is None else kind.read for kind in kinds]

    def read(body: Body) -> Any:
        chosen = readers[number(body)]
        return None if chosen is None else chosen(body)

    return Kind(spark, read)


def array_of(items: Kind) -> Kind:
    """Return the kind of an array of these items."""

    def read(body: Body) -> list[Any]:
        return [value for count in _blocks(body) for value in (items.read(body) for _ in range(count))]

    return Kind(ArrayType(items.spark), read)


def map_of(values: Kind) -> Kind:
    """Return the kind of a map from texts to these values."""

    def read(body: Body) -> dict[str, Any]:
        return {_text(body): values.read(body) for count in _blocks(body) for _ in range(count)}

    return Kind(MapType(StringType(), values.spark), read)


def _blocks(body: Body) -> Iterator[int]:
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
