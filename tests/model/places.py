"""Where the messages of the model are; and how its named tuples are changed."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias, TypeVar

__all__ = ["Message", "Place", "Violation", "replace"]

T = TypeVar("T", bound=tuple[Any, ...])

Message: TypeAlias = tuple[bytes, int]  # bundle and position


class Violation(Exception):
    """A promise is broken."""


class Place(NamedTuple):
    """Where a message is."""

    state: str  # ready, held, given back
    holder: bytes
    due: int
    deliveries: int


def replace(value: T, **fields: Any) -> T:
    """Return the named tuple with other values for these fields."""
    return value._replace(**fields)  # type: ignore[attr-defined]
