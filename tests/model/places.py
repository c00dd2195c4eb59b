"""Where the messages of the model are."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

__all__ = ["Message", "Place", "Violation"]

Message: TypeAlias = tuple[bytes, int]  # bundle and position


class Violation(Exception):
    """A promise is broken."""


class Place(NamedTuple):
    """Where a message is."""

    state: str  # ready, held, given back
    holder: bytes
    due: int
    deliveries: int
