"""How long ago something was, also when the machine was suspended meanwhile or its time of day was set."""

from __future__ import annotations

import time

import msgspec

__all__ = ["Moment", "time_of_day", "uptime"]

_CLOCK = getattr(time, "CLOCK_BOOTTIME", None)


def uptime() -> int:
    """Return microseconds on a clock that nobody sets; where there is such a one, it goes on during a suspension."""
    return (time.monotonic_ns() if _CLOCK is None else time.clock_gettime_ns(_CLOCK)) // 1000


def time_of_day() -> int:
    """Return microseconds since 1970, as this machine is set."""
    return time.time_ns() // 1000


class Moment(msgspec.Struct, frozen=True):
    """A moment on this machine's clocks, in microseconds."""

    uptime: int
    time_of_day: int

    @classmethod
    def now(cls) -> Moment:
        """Return this moment."""
        return cls(uptime(), time_of_day())

    def passed(self) -> float:
        """Return seconds since, at most: the more of what the two clocks say, whichever way the time of day went."""
        now = Moment.now()
        return max(now.uptime - self.uptime, abs(now.time_of_day - self.time_of_day)) / 1_000_000

    def surely_passed(self) -> float:
        """Return seconds since, at least."""
        return (uptime() - self.uptime) / 1_000_000

    def drift(self, since: Moment) -> int:
        """Return by how much the two clocks went apart: the machine stood still, or its time of day was set."""
        return abs((self.time_of_day - since.time_of_day) - (self.uptime - since.uptime))
