"""Models of pydantic among the arguments and results of tasks. It need not be installed.

A model is written as pydantic dumps it for JSON, by the names of its fields, and read by its validators. So aliases,
computed fields and strict types do not matter. What would not arrive as it was sent is refused.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import msgspec

from shardq.base.texts import kind_of

__all__ = ["read", "readable", "write"]


def write(value: Any) -> Any:
    """A model as plain values. Raises ValueError, or NotImplementedError for what is no model."""
    if not _is_model(type(value)):
        raise NotImplementedError(f"{kind_of(value)} has no form that can be sent")
    dumped = value.model_dump(mode="json", round_trip=True, by_alias=False, warnings=False)
    if _whole(read(type(value), dumped)) != _whole(value):
        raise ValueError(
            f"{kind_of(value)} is not the same when what pydantic dumps of it is read again: give serializers "
            "to fields that hold secrets, and to fields whose values are not of the type that they declare"
        )
    return dumped


def read(kind: Any, value: Any) -> Any:
    """A model, or what :func:`readable` made, of plain values. Raises ValueError, or NotImplementedError."""
    if kind is object:
        return value
    if _is_model(kind):
        validate = kind.model_validate_json
    elif issubclass(kind, _ReadByPydantic):
        validate = kind.adapter.validate_json
    else:
        raise NotImplementedError(f"a {kind.__name__} cannot be made of what was sent")
    return validate(json.dumps(value, default=_plain), by_alias=False, by_name=True)


def readable(kind: Any) -> Any:
    """A type that msgspec reads for this one: itself, or where msgspec has none for it, one that pydantic reads.

    So unions of models work. Raises TypeError for what neither can read.
    """
    try:
        msgspec.msgpack.Decoder(kind, dec_hook=read)
    except TypeError:
        try:
            from pydantic import TypeAdapter  # noqa: PLC0415 - need not be installed
        except ImportError:
            pass
        else:
            return type(str(kind), (_ReadByPydantic,), {"adapter": TypeAdapter(kind)})
        raise
    return kind


class _Anything(type):
    """Of a type that says of everything that it is of it: msgspec asks that of what pydantic has read."""

    def __instancecheck__(cls, instance: object) -> bool:
        return True


class _ReadByPydantic(metaclass=_Anything):
    adapter: Any


def _is_model(kind: Any) -> bool:
    return callable(getattr(kind, "model_dump", None)) and callable(
        getattr(kind, "model_validate_json", None)
    )


def _whole(model: Any) -> Any:
    """All that a model has, but for what pydantic is told to leave out."""
    return model.model_dump(round_trip=True, serialize_as_any=True, warnings=False)


def _plain(value: object) -> str:
    """What MessagePack has types for and JSON has not, beside models."""
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{kind_of(value)} beside a model of several types cannot be sent")
