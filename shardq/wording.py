"""Words for errors, and values as they are written."""

from __future__ import annotations

from typing import Any, TypeVar

__all__ = ["kind_of", "plain", "shortened"]

T = TypeVar("T")

_LONGEST = 300  # characters


def kind_of(value: object) -> str:
    """Return the type of a value, with its article: "an int", "a str"."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'AEIOaeio' else 'a'} {name}"


def shortened(value: object) -> str:
    """Return what somebody gave for a name or an id as Python writes it, or the start of that where it is long."""
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def plain(value: T) -> T:
    """Return a text or a number of a subclass as Python's own type has it, and anything else as it is.

    A member of an enum, for one, may be written otherwise than what it is equal to.
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
