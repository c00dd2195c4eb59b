"""The time. Clocks are passed in, so that tests can hold the time still."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol, TypeGuard

__all__ = [
    "Clock",
    "SystemClock",
    "from_datetime",
    "is_aware",
    "microseconds",
    "read_duration",
    "rest_after",
    "seconds",
    "to_datetime",
]

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_PART = r"(\d+(?:\.\d+)?)(ms|s|m|h|d)"
_WHOLE = re.compile(rf"(?:{_PART})+")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Clock(Protocol):
    """A source of the time, such as the clock of a test. See :func:`shardq.connect`."""

    def now(self) -> int:
        """Return microseconds since 1970-01-01 UTC."""
        ...


class SystemClock:
    """The clock of this machine."""

    def now(self) -> int:
        """Return microseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1000


def microseconds(seconds: float) -> int:
    """Convert seconds, as settings and arguments have them, to the microseconds of the stores."""
    return round(seconds * 1_000_000)


def seconds(microseconds: int) -> float:
    """Convert microseconds of the stores to seconds."""
    return microseconds / 1_000_000


def to_datetime(microseconds: int) -> datetime:
    """Convert a moment of the stores to an aware UTC ``datetime``."""
    return _EPOCH + timedelta(microseconds=microseconds)


def is_aware(moment: object) -> TypeGuard[datetime]:
    """Return whether a ``datetime`` knows its offset from UTC. One with a time zone may not know it."""
    return isinstance(moment, datetime) and moment.utcoffset() is not None


def from_datetime(moment: datetime) -> int:
    """Convert an aware ``datetime`` to microseconds since 1970-01-01 UTC."""
    return (moment - _EPOCH) // _MICROSECOND


def rest_after(took: float, share: float) -> float:
    """Return the seconds to rest after work that took some, so that it takes this share of the time at most."""
    return took * (1 / share - 1)


def read_duration(text: str) -> float:
    """Return the seconds of a duration: a number, or one with units such as ``1h30m``. Raises ValueError."""
    text = text.strip()
    if _WHOLE.fullmatch(text):
        return sum(float(number) * _UNITS[unit] for number, unit in re.findall(_PART, text))
    try:
        return float(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is not a duration: give seconds, or a number with ms, s, m, h or d"
        ) from None
