"""Bodies as columns: bytes as they are, text, or typed columns out of JSON or Avro."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import BinaryType, DataType, StringType, StructType

from shardq.base.unreadable import UNREADABLE
from shardq.errors import InvalidMessage, InvalidSetting
from shardq.spark.avro_bodies import AVRO_EXAMPLE, avro_columns, avro_decoder
from shardq.spark.json_bodies import json_columns, json_decoder
from shardq.spark.options import RowOptions

__all__ = ["CORRUPT", "BodyReader", "arrow_type", "body_type"]

CORRUPT = "corrupt_body"
"""The column of what cannot be read."""

_COLUMNS: dict[str, Callable[[str], StructType]] = {"json": json_columns, "avro": avro_columns}
_EXAMPLES = {"json": "'customer STRING, amount DOUBLE'", "avro": AVRO_EXAMPLE}
_UNREADABLE = (*UNREADABLE, IndexError)  # the latter of the decoder of Avro
_UNFIT = (pa.ArrowException, ValueError, TypeError, OverflowError)


def body_type(options: RowOptions) -> DataType:
    """The type of the column ``body``; raises InvalidSetting."""
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
    """The type that Spark expects in a record batch."""
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
        """Both columns; raises InvalidMessage naming the first message that cannot be read, where that is asked."""
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
    """What reads one body; raises one of _UNREADABLE."""
    if options.body_format == "text":
        return bytes.decode
    if options.body_format == "json":
        return json_decoder(kind)
    assert options.body_schema is not None
    return avro_decoder(options.body_schema)
