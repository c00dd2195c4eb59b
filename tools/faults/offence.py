"""A broken promise, as the checker tells of it."""

from __future__ import annotations

import msgspec

from .history import Event

__all__ = ["SHOWN", "Offence"]

SHOWN = 5  # messages of a kind whose history is in the report


class Offence(msgspec.Struct, frozen=True):
    """A broken promise: how many messages it hit, and the histories of some."""

    promise: str
    count: int
    histories: dict[str, tuple[Event, ...]] = {}
