"""Which messages a subscription takes: patterns of subjects, and conditions on headers."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import isnan
from typing import Any, TypeAlias

import msgspec

from shardq.base.outgoing_message import Headers, HeaderValue
from shardq.base.texts import kind_of, plain, shown
from shardq.core.sending.prepared import check_headers
from shardq.errors import InvalidMessage
from shardq.topics.names import InvalidFilter

__all__ = ["EVERYTHING", "SUBJECT", "Filter", "FilterLike", "check_subject", "filter_of"]

SUBJECT = "shardq-subject"
"""The header that has a message's subject."""

_LONGEST = 200
_TOKEN = re.compile(r"[^\s.*>\ud800-\udfff]+")  # lone surrogates are no text that can be stored
_ORDERED: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_OPERATORS = ("=", "!=", *_ORDERED, "prefix", "exists")


class _Condition(msgspec.Struct, frozen=True, array_like=True):
    """A condition on one header."""

    header: str
    operator: str
    values: tuple[Any, ...]  # HeaderValue

    def holds(self, headers: Headers) -> bool:
        """Return whether the headers meet it. One that is missing meets nothing but ``exists: False``."""
        if self.operator == "exists":
            return (self.header in headers) is self.values[0]
        if self.header not in headers:
            return False
        value = headers[self.header]
        if self.operator == "prefix":
            return isinstance(value, str) and value.startswith(str(self.values[0]))
        if self.operator in _ORDERED:
            return _kind(value) == _kind(self.values[0]) and _ORDERED[self.operator](value, self.values[0])
        among = any(_kind(value) == _kind(each) and value == each for each in self.values)
        return among == (self.operator == "=")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Condition) and self._compared == other._compared

    def __hash__(self) -> int:
        return hash(self._compared)

    @property
    def _compared(self) -> tuple[Any, ...]:
        """Its content with the kinds of its values: to Python, True is 1, and one takes what the other leaves out."""
        return self.header, self.operator, frozenset((_kind(value), value) for value in self.values)


class Filter(msgspec.Struct, frozen=True):
    """The messages that a subscription takes: those with one of the subjects, whose headers meet all conditions.

    ``subjects`` are patterns of tokens with dots between them. ``*`` stands for one token, ``>`` at the end for one or
    more: ``orders.*.created``, ``orders.>``. Without any, every message is taken, also one without a subject.

    A condition of ``headers`` is a value, a list of values, or operators with a value. The operators are ``=`` and
    ``!=`` (a value or a list), ``<``, ``<=``, ``>``, ``>=``, ``prefix`` and ``exists``. A header that is missing meets
    nothing but ``{"exists": False}``. Numbers are compared with numbers and texts with texts.

    Made by :func:`Filter.of`, which raises InvalidFilter.

    >>> take = Filter.of("orders.*.created", headers={"total": {">=": 100}, "region": ["eu", "us"]})
    >>> take.takes({"shardq-subject": "orders.7.created", "total": 120, "region": "eu"})
    True
    """

    subjects: tuple[str, ...] = ()
    headers: tuple[_Condition, ...] = ()

    def __post_init__(self) -> None:
        subjects, headers = self.subjects, self.headers
        is_plain = isinstance(subjects, tuple) and all(type(each) is str for each in subjects)
        if not (is_plain and isinstance(headers, tuple)):  # it could not be stored, or not be read again
            raise InvalidFilter(
                f"subjects={shown(subjects)}, headers={shown(headers)}: make the filter with Filter.of()"
            )
        for pattern in subjects:
            _check_pattern(pattern)
        if not all(isinstance(condition, _Condition) for condition in self.headers):
            raise InvalidFilter(
                f"headers={shown(self.headers)}: make the filter with Filter.of(headers={{...}})"
            )

    @classmethod
    def of(cls, subject: str | Sequence[str] = (), *, headers: Mapping[str, Any] | None = None) -> Filter:
        """Return the filter of a pattern, or of several, and conditions. Raises InvalidFilter."""
        patterns = (subject,) if isinstance(subject, str) else subject
        if isinstance(patterns, bytes) or not isinstance(patterns, Sequence):
            raise InvalidFilter(
                f"subject={shown(subject)} is {kind_of(subject)}: give a str or a list of them"
            )
        if headers is not None and not isinstance(headers, Mapping):
            raise InvalidFilter(
                f"headers={shown(headers)} are {kind_of(headers)}: give a mapping of conditions"
            )
        conditions = [made for name, given in (headers or {}).items() for made in _conditions(name, given)]
        return cls(tuple(map(_check_pattern, patterns)), tuple(conditions))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Filter) and self._compared == other._compared

    def __hash__(self) -> int:
        return hash(self._compared)

    @property
    def _compared(self) -> tuple[frozenset[str], frozenset[_Condition]]:
        """Its content without the order, which does not matter."""
        return frozenset(self.subjects), frozenset(self.headers)

    @property
    def takes_everything(self) -> bool:
        """True when it leaves nothing out."""
        return not (self.subjects or self.headers)

    def takes(self, headers: Headers | None) -> bool:
        """Return whether it takes a message with such headers."""
        found = {} if headers is None else headers
        if not isinstance(found, Mapping):
            raise InvalidMessage(
                f"headers={shown(headers)} are {kind_of(headers)}: give a mapping of str to values"
            )
        if self.subjects:
            subject = found.get(SUBJECT)
            if not isinstance(subject, str) or not _compiled(self.subjects).fullmatch(subject):
                return False
        return all(condition.holds(found) for condition in self.headers)

    def __str__(self) -> str:
        conditions = [f"{each.header} {each.operator} {_shown(each.values)}" for each in self.headers]
        return (
            " and ".join([*([" or ".join(self.subjects)] if self.subjects else []), *conditions])
            or "everything"
        )


EVERYTHING = Filter()

FilterLike: TypeAlias = Filter | str | Sequence[str]
"""A filter, or the pattern of the subjects, or several."""


def filter_of(given: FilterLike) -> Filter:
    """Make the filter that was given in short. Raises InvalidFilter."""
    return given if isinstance(given, Filter) else Filter.of(given)


def check_subject(subject: object) -> str | None:
    """Return the subject of a message that is to be published; raises InvalidMessage."""
    if subject is None:
        return None
    if not isinstance(subject, str) or not _is_subject(subject, wildcards=False):
        raise InvalidMessage(
            f"subject={shown(subject)}: give a str of at most {_LONGEST} characters: tokens with single dots between "
            "them, without spaces, '*' and '>', such as 'orders.7.created'"
        )
    return plain(subject)


def _check_pattern(pattern: object) -> str:
    if not isinstance(pattern, str) or not _is_subject(pattern, wildcards=True):
        raise InvalidFilter(
            f"subject={shown(pattern)}: give tokens with dots between them, where '*' is any one token, and '>' at the "
            "end any that follow, such as 'orders.*.created' or 'orders.>'"
        )
    return plain(pattern)


def _is_subject(text: str, *, wildcards: bool) -> bool:
    *first, last = text.split(".")
    literal = [token for token in first if not (wildcards and token == "*")]
    if not (wildcards and last in ("*", ">")):
        literal.append(last)
    return len(text) <= _LONGEST and all(_TOKEN.fullmatch(token) for token in literal)


@lru_cache(maxsize=1_000)
def _compiled(patterns: tuple[str, ...]) -> re.Pattern[str]:
    wild = {"*": r"[^.]+", ">": r".+"}
    each = (
        r"\.".join(wild.get(token, re.escape(token)) for token in pattern.split(".")) for pattern in patterns
    )
    return re.compile("|".join(each))


def _conditions(name: object, given: object) -> list[_Condition]:
    if not isinstance(name, str) or not name:
        raise InvalidFilter(f"header name {shown(name)}: give a str")
    operators = given if isinstance(given, Mapping) else {"=": given}
    if not operators:
        raise InvalidFilter(
            f"header {shown(name)} has no condition: give a value, a list, or an operator with a value"
        )
    return [_condition(plain(name), each, value) for each, value in operators.items()]


def _condition(name: str, using: object, given: object) -> _Condition:
    if using not in _OPERATORS:
        raise InvalidFilter(
            f"header {shown(name)}: {shown(using)} is not an operator, use one of {', '.join(_OPERATORS)}"
        )
    using = str(plain(using))
    many = isinstance(given, list | tuple | set | frozenset) and using in ("=", "!=")
    values: tuple[Any, ...] = tuple(given) if many else (given,)  # type: ignore[arg-type]
    wanted: tuple[type, ...] = {"exists": (bool,), "prefix": (str,)}.get(
        using, (str, int, float, bool, bytes)
    )
    if using in _ORDERED:
        wanted = (str, int, float)
    if not values or any(type(value) not in wanted or _is_nan(value) for value in values):
        kinds = ", ".join(kind.__name__ for kind in wanted)
        raise InvalidFilter(
            f"header {shown(name)} {using} {shown(given)}: give a value that is one of {kinds}"
        )
    try:
        for value in values:
            check_headers({name: value})
    except InvalidMessage as error:
        raise InvalidFilter(str(error)) from None
    if isinstance(given, set | frozenset):  # whose order is another one in another process
        values = tuple(sorted(values, key=repr))
    return _Condition(name, using, values)


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and isnan(value)


def _kind(value: HeaderValue) -> type:
    return float if type(value) is int else type(value)


def _shown(values: Sequence[HeaderValue]) -> str:
    return repr(values[0]) if len(values) == 1 else repr(list(values))
