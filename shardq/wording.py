"""Words for errors, and values as they are written."""

from __future__ import annotations

from typing import Any, TypeVar

__all__ = ["kind_of", "plain", "shown"]

T = TypeVar("T")

_LONGEST = 200


def kind_of(value: object) -> str:
    """Return the type of a value, with its article: "an int", "a str"."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'AEIOaeio' else 'a'} {name}"


def shown(value: object) -> str:
    """A value as an error names it: in short. What cannot be written, such as an int of 5,000 digits, by its type."""
    try:
        text = repr(value)
    except Exception:
        return f"<{type(value).__name__}>"
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
