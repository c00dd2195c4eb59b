"""Words for errors, and values as they are written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypeVar

__all__ = ["described", "escaped", "kind_of", "many", "masked", "plain", "plural", "shown", "text_of"]

T = TypeVar("T")

_LONGEST = 200
_LOGIN = re.compile("(://)(?!/|user:password@).*@", re.DOTALL)  # no path, and not that of remedies
_OPTIONS = re.compile(r"(://[^\s?]*\?)\S*=.*", re.DOTALL)
_BRACKETS: dict[type, tuple[str, str]] = {list: ("[", "]"), tuple: ("(", ")"), set: ("{", "}")}


def kind_of(value: object) -> str:
    """Return the type of a value, with its article: "an int", "a str"."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'AEIOaeio' else 'a'} {name}"


def escaped(text: str) -> str:
    """Return a text in which bytes that are no text, as in file names, are escaped."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def text_of(error: BaseException) -> str:
    """Return the escaped text of an error that a program has raised; none if the error cannot make it."""
    try:
        return escaped(str(error))
    except Exception:  # an error whose text cannot be made is a failure like any other
        return ""


def described(error: BaseException) -> str:
    """Return the type and the text of an error that a program has raised.

    >>> described(ValueError("no tea")), described(TimeoutError())
    ('ValueError: no tea', 'TimeoutError')
    """
    kind, text = type(error).__name__, text_of(error)
    return f"{kind}: {text}" if text else kind


def many(count: int, noun: str) -> str:
    """Write a number with its noun: ``1 message``, ``2,000 messages``."""
    return f"{count:,} {plural(noun, count)}"


def plural(noun: str, count: int) -> str:
    """Return a noun as it follows a number: ``message`` after 1, else ``messages``."""
    return noun if count == 1 else f"{noun}es" if noun.endswith("s") else f"{noun}s"


def masked(text: str) -> str:
    """Return the text without the logins and options of the URLs in it, which may hold passwords.

    The end of a password that is not quoted cannot be known. So all is left out up to the last ``@`` of the text.
    """
    return _OPTIONS.sub(r"\1...", _LOGIN.sub(r"\1...@", text))


def shown(value: object) -> str:
    """Return a value as an error names it: its start, which costs no more for a large text or collection.

    Of a URL the login and the options are masked. A value that cannot be written, such as an int of 5,000 digits, is
    named by its type.
    """
    text = ""
    try:
        for piece in _pieces(value):
            text += piece
            if len(text) > _LONGEST:
                return f"{text[:_LONGEST]}..."
    except Exception:
        return f"<{type(value).__name__}>"
    return text


def _pieces(value: Any) -> Iterator[str]:
    """Yield a value as ``repr`` writes it, piece by piece.

    A value that is too long to be shown whole is not written to its end.
    """
    kind = type(value)
    if kind is str:
        yield repr(_start(value))
    elif kind in (bytes, bytearray):
        yield repr(value[:_LONGEST])
    elif kind is dict and value:
        for number, (key, each) in enumerate(value.items()):
            yield ", " if number else "{"
            yield from _pieces(key)
            yield ": "
            yield from _pieces(each)
        yield "}"
    elif kind in _BRACKETS and value:
        left, right = _BRACKETS[kind]
        for number, each in enumerate(value):
            yield ", " if number else left
            yield from _pieces(each)
        yield f",{right}" if kind is tuple and len(value) == 1 else right
    else:
        yield repr(value)


def _start(text: str) -> str:
    start = text[:_LONGEST]
    if "://" not in start:
        return start
    return masked(text) if len(text) <= _LONGEST else start.partition("://")[0] + "://..."


def plain(value: T) -> T:
    """Return a text or a number of a subclass as Python's own type has it, and anything else as it is.

    A member of an enum, for one, may be written differently from its equal.
    """
    exact: Any = value
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        exact = str.__str__(value)
    elif isinstance(value, int):
        exact = int.__int__(value)
    elif isinstance(value, float):
        exact = float.__float__(value)
    return exact  # type: ignore[no-any-return]
