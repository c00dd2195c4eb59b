"""Columns written as text: ``customer STRING, amount DOUBLE``, ``struct<...>``, or what ``schema.json()`` gives.

Spark reads such text in the JVM, which the processes that plan a source do not have.
"""

from __future__ import annotations

import json
import re

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
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from shardq.errors import InvalidSetting

__all__ = ["columns_of"]

_SIMPLE: dict[str, type[DataType]] = {
    "string": StringType, "binary": BinaryType, "boolean": BooleanType, "tinyint": ByteType, "byte": ByteType,
    "smallint": ShortType, "short": ShortType, "int": IntegerType, "integer": IntegerType, "bigint": LongType,
    "long": LongType, "float": FloatType, "real": FloatType, "double": DoubleType, "date": DateType,
    "timestamp": TimestampType, "timestamp_ltz": TimestampType, "timestamp_ntz": TimestampNTZType,
}  # fmt: skip
_PARTS = ("day", "hour", "minute", "second")
_TOKEN = re.compile(r"`(?:[^`]|``)+`|\w+|\S")
_END = ""


def columns_of(option: str, text: str) -> StructType:
    """Parse the columns; raises InvalidSetting naming the option and the place."""
    if text.lstrip().startswith("{"):
        return _of_json(option, text)
    tokens = [*_TOKEN.findall(text), _END]
    if [token.lower() for token in tokens[:2]] == ["struct", "<"] and tokens[-2] == ">":
        tokens = [*tokens[2:-2], _END]
    return _Parser(option, tokens).columns(_END)


def _of_json(option: str, text: str) -> StructType:
    try:
        return StructType.fromJson(json.loads(text))
    except Exception as error:  # whatever PySpark makes of it
        raise InvalidSetting(
            f"option {option} is not a schema in JSON ({error}): give schema.json(), "
            "or with bodyFormat=avro a schema of Avro"
        ) from error


class _Parser:
    def __init__(self, option: str, tokens: list[str]) -> None:
        self._option, self._tokens, self._place = option, tokens, 0

    def columns(self, end: str) -> StructType:
        """Parse names and types up to a closing token."""
        fields: list[StructField] = []
        while True:
            name = self._name()
            if any(field.name.lower() == name.lower() for field in fields):
                raise InvalidSetting(f"option {self._option} has column {name!r} twice")
            if self._next == ":":
                self._take()
            fields.append(StructField(name, self._type()))
            if self._next == end:
                self._take()
                return StructType(fields)
            self._expect(",")

    @property
    def _next(self) -> str:
        return self._tokens[self._place]

    def _take(self) -> str:
        token = self._next
        self._place = min(self._place + 1, len(self._tokens) - 1)
        return token

    def _expect(self, wanted: str) -> None:
        if self._next != wanted:
            raise self._wrong()
        self._take()

    def _name(self) -> str:
        token = self._take()
        if token.startswith("`") and len(token) > 2:
            return token[1:-1].replace("``", "`")
        if not re.fullmatch(r"\w+", token):
            self._place -= token != _END
            raise self._wrong()
        return token

    def _type(self) -> DataType:
        kind = self._next.lower()
        if kind not in {*_SIMPLE, "array", "map", "struct", "decimal", "dec", "numeric", "interval"}:
            raise self._wrong()
        self._take()
        if kind in _SIMPLE:
            return _SIMPLE[kind]()
        if kind in {"decimal", "dec", "numeric"}:
            return self._decimal()
        if kind == "interval":
            return self._interval()
        self._expect("<")
        if kind == "struct":
            return self.columns(">")
        inner = self._type()
        if kind == "map":
            self._expect(",")
            inner = MapType(inner, self._type())
        self._expect(">")
        return inner if kind == "map" else ArrayType(inner)

    def _decimal(self) -> DecimalType:
        if self._next != "(":
            return DecimalType()
        self._take()
        numbers = [self._number()]
        if self._next == ",":
            self._take()
            numbers.append(self._number())
        self._expect(")")
        if not (1 <= numbers[0] <= 38 and numbers[-1] <= numbers[0]):
            raise InvalidSetting(f"option {self._option} has a decimal of {numbers}: it has 1 to 38 digits")
        return DecimalType(*numbers)

    def _interval(self) -> DayTimeIntervalType:
        first = last = self._part()
        if self._next.lower() == "to":
            self._take()
            last = self._part()
        if last < first:
            raise self._wrong()
        return DayTimeIntervalType(first, last)

    def _part(self) -> int:
        if self._next.lower() not in _PARTS:
            raise self._wrong()
        return _PARTS.index(self._take().lower())

    def _number(self) -> int:
        if not self._next.isdecimal():
            raise self._wrong()
        return int(self._take())

    def _wrong(self) -> InvalidSetting:
        where = " ".join(self._tokens[self._place :]).strip()
        return InvalidSetting(
            f"option {self._option} cannot be read at {where[:60]!r}: give columns with their types, such as "
            "'customer STRING, amount DOUBLE', or schema.json()"
        )
