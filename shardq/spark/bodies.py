"""Bodies as columns: bytes as they are, text, or typed columns out of JSON or Avro."""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypedDict

import msgspec
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from shardq.base.codec import UNREADABLE
from shardq.errors import InvalidMessage, InvalidSetting
from shardq.spark.avro_bodies import AVRO_EXAMPLE, avro_columns, avro_decoder
from shardq.spark.ddl import columns_of
from shardq.spark.options import RowOptions

__all__ = ["CORRUPT", "BodyReader", "arrow_type", "body_type"]


class _Number(float):
    """A number that may be none: Spark writes such ones in quotes, as JSON has none."""


class _Interval(datetime.timedelta):
    """Days to seconds as Spark writes them: ``INTERVAL '1 02:03:04.5' DAY TO SECOND``."""


_PLAIN: dict[type[DataType], Any] = {
    StringType: str,
    BinaryType: bytes,  # base64, as Spark has it in JSON
    BooleanType: bool,
    DateType: datetime.date,
    DayTimeIntervalType: _Interval,
    DecimalType: decimal.Decimal,
    TimestampType: Annotated[datetime.datetime, msgspec.Meta(tz=True)],
    TimestampNTZType: Annotated[datetime.datetime, msgspec.Meta(tz=False)],
}
_BITS: dict[type[DataType], int] = {ByteType: 7, ShortType: 15, IntegerType: 31, LongType: 63}
_NO_NUMBERS = frozenset({"NaN", "Infinity", "-Infinity"})
_UNITS = ("days", "hours", "minutes", "seconds")
_FIRST = {"DAY": 0, "HOUR": 1, "MINUTE": 2, "SECOND": 3}
_INTERVAL = re.compile(
    r"INTERVAL '(?P<sign>-?)(?P<numbers>\d+(?:[ :]\d+)*(?:\.\d+)?)' (?P<unit>DAY|HOUR|MINUTE|SECOND)(?: TO \w+)?"
)


def json_columns(text: str) -> StructType:
    """Parse the columns of a schema in DDL or in Spark's JSON.

    Raises InvalidSetting for one that JSON cannot be read as.
    """
    columns = columns_of("bodySchema", text)
    _python_type(columns)
    return columns


def json_decoder(kind: DataType) -> Callable[[bytes], Any]:
    """Make a decoder of one body.

    It raises MsgspecError, ValueError, OverflowError or RecursionError for one that does not fit. A text that is no
    UTF-8 is a ValueError, a whole number beyond all doubles an OverflowError.
    """
    plain = msgspec.json.Decoder(_python_type(kind), dec_hook=_from_text)
    spelled = msgspec.json.Decoder(_python_type(kind, _Number), dec_hook=_from_text)

    def decode(body: bytes) -> Any:
        try:
            return plain.decode(body)
        except msgspec.ValidationError:  # seldom, and to call the hook for each number would cost each body
            return spelled.decode(body)

    return decode


def _from_text(kind: type, value: Any) -> Any:
    """Read a value for which JSON has no type; raises ValueError."""
    if kind is _Interval and isinstance(value, str):
        return _interval(value)
    if kind is _Number and (value in _NO_NUMBERS if isinstance(value, str) else type(value) in (int, float)):
        return _Number(value)
    raise ValueError(f"{value!r} cannot be read")


def _interval(text: str) -> _Interval:
    found = _INTERVAL.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no interval of days to seconds")
    numbers = [float(found["sign"] + number) for number in re.split("[ :]", found["numbers"])]
    units = _UNITS[_FIRST[found["unit"]] :]
    return _Interval(**dict(zip(units, numbers, strict=False)))


def _python_type(kind: DataType, number: type[float] = float) -> Any:
    """Return the Python type that JSON is checked against.

    Raises InvalidSetting for a type that JSON cannot be read as.
    """
    if isinstance(kind, StructType):
        columns = {field.name: _python_type(field.dataType, number) | None for field in kind.fields}
        return TypedDict("Columns", columns, total=False)  # type: ignore[operator]
    if isinstance(kind, ArrayType):
        return list[_python_type(kind.elementType, number) | None]  # type: ignore[misc]
    if isinstance(kind, MapType) and isinstance(kind.keyType, StringType):
        return dict[str, _python_type(kind.valueType, number) | None]  # type: ignore[misc]
    if isinstance(kind, FloatType | DoubleType):
        return number
    if type(kind) in _BITS:
        most = 1 << _BITS[type(kind)]
        return Annotated[int, msgspec.Meta(ge=-most, le=most - 1)]
    if type(kind) in _PLAIN:
        return _PLAIN[type(kind)]
    raise InvalidSetting(
        f"option bodySchema has type {kind.simpleString()}, which is not read from JSON: read the bodies with "
        "bodyFormat=text, and parse them with from_json"
    )


CORRUPT = "corrupt_body"
"""The column of bodies that cannot be read."""

_COLUMNS: dict[str, Callable[[str], StructType]] = {"json": json_columns, "avro": avro_columns}
_EXAMPLES = {"json": "'customer STRING, amount DOUBLE'", "avro": AVRO_EXAMPLE}
_UNREADABLE = (*UNREADABLE, IndexError)  # the latter of the decoder of Avro
_UNFIT = (pa.ArrowException, ValueError, TypeError, OverflowError)


def body_type(options: RowOptions) -> DataType:
    """Return the type of the column ``body``; raises InvalidSetting."""
    name, schema = options.body_format, options.body_schema
    if name not in _COLUMNS:
        if schema is not None:
            raise InvalidSetting(
                "option bodySchema is for bodies in JSON or Avro: add option('bodyFormat', 'json'), or 'avro'"
            )
        return StringType() if name == "text" else BinaryType()
    if schema is None:
        raise InvalidSetting(f"option bodyFormat={name} needs bodySchema, such as {_EXAMPLES[name]}")
    return _COLUMNS[name](schema)


def arrow_type(kind: DataType) -> pa.DataType:
    """Return the type that Spark expects in a record batch."""
    return to_arrow_type(kind, timezone="UTC")


class BodyReader:
    """Makes the columns ``body`` and ``corrupt_body``. Made in the task that reads: a decoder cannot be copied."""

    def __init__(self, options: RowOptions) -> None:
        self._raw, self._strict = options.body_format == "binary", options.body_mode == "failfast"
        self._kind: pa.DataType = pa.binary()
        self._decode: Callable[[bytes], Any] = bytes
        if not self._raw and options.include_body:
            kind = body_type(options)
            self._kind, self._decode = arrow_type(kind), _decoder(kind, options)

    def columns(
        self, bodies: Sequence[bytes | None], identities: Callable[[], pa.Array]
    ) -> dict[str, pa.Array]:
        """Make both columns.

        Raises InvalidMessage naming the first message that cannot be read, if that is the mode.
        """
        if self._raw:
            return {"body": pa.array(bodies, self._kind)}
        values, corrupt = self._read(bodies)
        if self._strict:
            for place, body in enumerate(corrupt):
                if body is not None:
                    raise InvalidMessage(
                        f"the body of message {identities()[place]} cannot be read: {body[:60]!r}; "
                        f"bodyMode=permissive puts it into the column {CORRUPT}"
                    )
        return {"body": values, CORRUPT: pa.array(corrupt, pa.binary())}

    def _read(self, bodies: Sequence[bytes | None]) -> tuple[pa.Array, list[bytes | None]]:
        values: list[Any] = []
        corrupt: list[bytes | None] = []
        for body in bodies:
            value = None if body is None else self._value(body)
            values.append(value)
            corrupt.append(body if value is None else None)
        try:
            return pa.array(values, self._kind), corrupt
        except _UNFIT:  # such as a decimal with more digits than the column has
            return self._one_by_one(bodies, values)

    def _one_by_one(
        self, bodies: Sequence[bytes | None], values: list[Any]
    ) -> tuple[pa.Array, list[bytes | None]]:
        fitting = [value if self._fits(value) else None for value in values]
        corrupt = [body if value is None else None for body, value in zip(bodies, fitting, strict=True)]
        return pa.array(fitting, self._kind), corrupt

    def _value(self, body: bytes) -> Any:
        try:
            return self._decode(body)
        except _UNREADABLE:
            return None

    def _fits(self, value: Any) -> bool:
        try:
            pa.array([value], self._kind)
        except _UNFIT:
            return False
        return True


def _decoder(kind: DataType, options: RowOptions) -> Callable[[bytes], Any]:
    """Make a decoder of one body; it raises one of _UNREADABLE."""
    if options.body_format == "text":
        return bytes.decode
    if options.body_format == "json":
        return json_decoder(kind)
    assert options.body_schema is not None
    return avro_decoder(options.body_schema)
