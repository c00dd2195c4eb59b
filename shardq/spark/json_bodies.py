"""Bodies in JSON: their columns, and what reads one body."""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import msgspec
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

from shardq.errors import InvalidSetting
from shardq.spark.ddl import columns_of

__all__ = ["json_columns", "json_decoder"]


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
    """The columns of a schema in DDL or in Spark's JSON; raises InvalidSetting for one that JSON cannot be read as."""
    columns = columns_of("bodySchema", text)
    _python_type(columns)
    return columns


def json_decoder(kind: DataType) -> Callable[[bytes], Any]:
    """What reads one body; it raises MsgspecError, ValueError, OverflowError or RecursionError for what does not fit.

    A text that is no UTF-8 is a ValueError, a whole number beyond all doubles an OverflowError.
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
    """What JSON has no type for; raises ValueError."""
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
    """The Python type that JSON is checked against; raises InvalidSetting for a type that JSON cannot be read as."""
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
