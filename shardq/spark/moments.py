"""Moments among the options."""

from __future__ import annotations

from datetime import datetime

from shardq.base.clock import from_datetime
from shardq.errors import InvalidSetting

__all__ = ["FOREVER", "moment_of"]

FOREVER = 2**62
"""A moment that does not come, in microseconds."""


def moment_of(name: str, text: str | None, default: int) -> int:
    """Return a moment in ISO 8601 as microseconds; raises InvalidSetting."""
    if text is None:
        return default
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidSetting(
            f"option {name}={text!r} is no moment: give ISO 8601, such as 2026-01-31T08:00:00Z"
        ) from error
    if moment.tzinfo is None:
        raise InvalidSetting(f"option {name}={text!r} has no time zone: end it with Z for UTC")
    return from_datetime(moment)
