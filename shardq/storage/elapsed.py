"""How long ago something was, also when the machine was suspended meanwhile or its time of day was set."""

from __future__ import annotations

import time

import msgspec

__all__ = ["Moment", "uptime"]

_CLOCK = getattr(time, "CLOCK_BOOTTIME", None)


def uptime() -> int:
    """Return microseconds on a clock that nobody sets; where there is such a one, it goes on during a suspension."""
    return (time.monotonic_ns() if _CLOCK is None else time.clock_gettime_ns(_CLOCK)) // 1000


class Moment(msgspec.Struct, frozen=True):
    """A moment on this machine's clocks: the one that nobody sets, and the time of day."""

    uptime: int
    time_of_day: int

    @classmethod
    def now(cls) -> Moment:
        """Return this moment."""
        return cls(uptime(), time.time_ns() // 1000)

    def passed(self) -> float:
        """Return seconds since, at most: the more of what the two clocks say, whichever way the time of day went."""
        now = Moment.now()
        return max(now.uptime - self.uptime, abs(now.time_of_day - self.time_of_day)) / 1_000_000

    def surely_passed(self) -> float:
        """Return seconds since, at least."""
        return (uptime() - self.uptime) / 1_000_000

    def drift(self) -> float:
        """Return seconds by which the two clocks went apart: the machine stood still, or its time of day was set."""
        now = Moment.now()
        return abs((now.time_of_day - self.time_of_day) - (now.uptime - self.uptime)) / 1_000_000
