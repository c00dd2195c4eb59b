"""Words for errors."""

from __future__ import annotations

__all__ = ["kind_of"]


def kind_of(value: object) -> str:
    """Return the type of a value, with its article: "an int", "a str"."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'AEIOaeio' else 'a'} {name}"
