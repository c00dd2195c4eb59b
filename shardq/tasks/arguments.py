"""The arguments and the result of a task's function, as bytes: MessagePack that msgspec writes and checks, no pickle.

A body is a map of the parameters' names to their values. So parameters may change their order, and new ones with
defaults may be added, while tasks wait.

Models of pydantic may be among them; it need not be installed. A model is written as pydantic dumps it for JSON, by
the names of its fields, and read by its validators. So aliases, computed fields and strict types do not matter. Values
that would not arrive as they were sent are refused.
"""

from __future__ import annotations

import inspect
import json
import reprlib
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from inspect import BoundArguments, Parameter
from typing import Any, NamedTuple, get_type_hints

import msgspec

from shardq.base.texts import escaped, kind_of, shown
from shardq.errors import InvalidSetting, ShardqError
from shardq.storage.per_process import OwnLock
from shardq.tasks.errors import ArgumentsRejected, ResultRejected

__all__ = ["Arguments", "read", "readable", "write"]

MAX_SUMMARY = 200  # characters
_making = OwnLock()  # of decoders: two threads must not be the first to describe a struct (msgspec 0.22)


class Arguments:
    """How the arguments of one function are written and read. Types are looked up when the first are.

    ``value_of`` is the type of its result, made of the one that it declares.
    """

    def __init__(
        self, name: str, function: Callable[..., Any], value_of: Callable[[Any], Any] = lambda kind: kind
    ) -> None:
        self._name, self._function, self._value_of = name, function, value_of
        self._signature = inspect.signature(function)
        self._decoders: _Decoders | None = None

    def takes(self, name: str) -> bool:
        """Return True when the function takes a keyword argument of this name."""
        return name in self._signature.parameters or any(
            each.kind is Parameter.VAR_KEYWORD for each in self._signature.parameters.values()
        )

    def warn_of_no_types(self) -> None:
        """Warn, at the place of the function, of parameters without an annotation: these arrive as plain values."""
        names = [
            each.name for each in self._signature.parameters.values() if each.annotation is Parameter.empty
        ]
        if not names:
            return
        text = (
            f"task {self._name!r} has parameters without a type, {', '.join(names)}: a tuple or a set arrives as "
            f"a list, and an object as a dict; annotate its parameters, such as {names[0]}: int, or {names[0]}: Any"
        )
        code = self._function.__code__
        warnings.warn_explicit(text, UserWarning, code.co_filename, code.co_firstlineno)

    def encode(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
        """Return the body of a call.

        Raises ArgumentsRejected for arguments that are not taken, or cannot be written.
        """
        body = self._written(self._bound(args, kwargs))
        self.decode(body)
        return body

    def encode_rest(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[str, bytes]:
        """Return the body of a call whose first argument comes later, and the name of that. Raises ArgumentsRejected.

        The others are checked as those of :meth:`encode`.
        """
        first = next(iter(self._signature.parameters.values()), None)
        if first is None or first.kind not in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD):
            raise ArgumentsRejected(
                f"task {self._name!r} has no first argument for the value of the step before: use signature()"
            )
        given = self._bound([None, *args], kwargs)
        del given[first.name]
        body = self._written(given)
        self._read(self._made().rest, body)
        return first.name, body

    def decode(self, body: bytes) -> BoundArguments:
        """Return the arguments of a call, of the types that the function declares. Raises ArgumentsRejected."""
        values = self._read(self._made().arguments, body)
        given = {name: value for name, value in values.items() if value is not msgspec.UNSET}
        return BoundArguments(self._signature, OrderedDict(given))

    def _read(self, decoder: msgspec.msgpack.Decoder[Any], body: bytes) -> dict[str, Any]:
        try:
            return msgspec.structs.asdict(decoder.decode(body))
        except Exception as error:
            raise ArgumentsRejected(
                f"task {self._name!r} takes {self._signature}, and was given something else: {error}; send such "
                "arguments, or change the function"
            ) from error

    def summary(self, body: bytes) -> str:
        """Return the call in short, for logs: ``welcome(user='Ada')``; the name alone if the body cannot be read."""
        try:
            given = self.decode(body).arguments
        except ShardqError:
            return self._name
        values = ", ".join(f"{name}={_SHORT.repr(value)}" for name, value in given.items())
        text = _clean(f"{self._name}({values})")
        return text if len(text) <= MAX_SUMMARY else f"{text[: MAX_SUMMARY - 2]}…)"

    def encode_result(self, value: object) -> bytes:
        """Return a result as bytes. Raises ResultRejected."""
        try:
            return _ENCODER.encode(value)
        except Exception as error:
            raise ResultRejected(
                f"the result of task {self._name!r}, {shown(value)}, cannot be stored: {error}; return what "
                "msgspec or pydantic can write, or set keep_result=0"
            ) from error

    def decode_result(self, stored: bytes) -> Any:
        """Return a result, of the type that the function declares. Raises ResultRejected."""
        decoder = self._made().result
        try:
            return decoder.decode(stored)
        except Exception as error:
            raise ResultRejected(
                f"the result of task {self._name!r} is not of the type that it declares: {error}"
            ) from error

    def _bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return dict(self._signature.bind(*args, **kwargs).arguments)
        except TypeError as error:
            raise ArgumentsRejected(
                f"task {self._name!r} does not take these arguments: {error}; its signature is {self._signature}"
            ) from error

    def _written(self, given: Mapping[str, Any]) -> bytes:
        try:
            return _ENCODER.encode(given)
        except Exception as error:
            raise ArgumentsRejected(self._not_written(given, error)) from error

    def _not_written(self, given: Mapping[str, Any], error: Exception) -> str:
        for name, value in given.items():
            try:
                _ENCODER.encode(value)
            except Exception as wrong:
                return (
                    f"argument {name}={shown(value)} of task {self._name!r} cannot be sent: {wrong}; give plain "
                    "values, dataclasses, msgspec structs or pydantic models, such as the key of a record"
                )
        return f"the arguments of task {self._name!r} cannot be sent: {error}"

    def _made(self) -> _Decoders:
        if self._decoders is None:
            with _making.plain:
                self._decoders = self._decoders or self._make()
        return self._decoders

    def _make(self) -> _Decoders:
        try:
            hints = get_type_hints(self._function, include_extras=True)
            fields = [_field(each, hints) for each in self._signature.parameters.values()]
            rest = [(name, kind, _MAY_BE_LEFT_OUT) for name, kind, _ in fields[:1]] + fields[1:]
            return _Decoders(
                _decoder(_struct(fields)),
                _decoder(_struct(rest)),
                _decoder(readable(self._value_of(hints.get("return", Any)))),
            )
        except Exception as error:
            raise InvalidSetting(
                f"the annotations of task {self._name!r} cannot be used: {type(error).__name__}: {error}; name types "
                "that are imported when the module runs, and that msgspec or pydantic can read"
            ) from error


class _Decoders(NamedTuple):
    """Of one function: of all its arguments, of all but the first, and of its result."""

    arguments: msgspec.msgpack.Decoder[Any]
    rest: msgspec.msgpack.Decoder[Any]
    result: msgspec.msgpack.Decoder[Any]


def _struct(fields: list[tuple[str, Any, Any]]) -> type[msgspec.Struct]:
    return msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True, module=__name__)


def _field(parameter: Parameter, hints: Mapping[str, Any]) -> tuple[str, Any, Any]:
    kind: Any = readable(hints.get(parameter.name, Any))
    if parameter.kind is Parameter.VAR_POSITIONAL:
        return parameter.name, tuple.__class_getitem__((kind, ...)), _MAY_BE_LEFT_OUT
    if parameter.kind is Parameter.VAR_KEYWORD:
        return parameter.name, dict.__class_getitem__((str, kind)), _MAY_BE_LEFT_OUT
    if parameter.default is not Parameter.empty:
        return parameter.name, kind, _MAY_BE_LEFT_OUT
    return parameter.name, kind, msgspec.field()


def _decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(kind, dec_hook=read)


def _clean(text: str) -> str:
    """Return the text on one line, and printable."""
    return " ".join(escaped(text).split())


def write(value: Any) -> Any:
    """Return a model as plain values. Raises ValueError, or NotImplementedError for a value that is not a model."""
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
    """Return a model, or what :func:`readable` made, of plain values. Raises ValueError, or NotImplementedError."""
    if kind is object:
        return value
    if _is_model(kind):
        validate = kind.model_validate_json
    elif issubclass(kind, _ReadByPydantic):
        validate = kind.adapter.validate_json
    else:
        raise NotImplementedError(f"a {kind.__name__} cannot be made of the sent value")
    return validate(json.dumps(value, default=_plain_value), by_alias=False, by_name=True)


def readable(kind: Any) -> Any:
    """Return a type that msgspec reads for this one: itself, or where msgspec has none for it, one that pydantic reads.

    So unions of models work. Raises TypeError for a value that neither can read.
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
    """Return all that a model has, except the fields that pydantic excludes."""
    return model.model_dump(round_trip=True, serialize_as_any=True, warnings=False)


def _plain_value(value: object) -> str:
    """Return what MessagePack has types for and JSON has not, beside models."""
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{kind_of(value)} beside a model of several types cannot be sent")


_MAY_BE_LEFT_OUT: Any = msgspec.field(default=msgspec.UNSET)
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60
_ENCODER = msgspec.msgpack.Encoder(enc_hook=write)
