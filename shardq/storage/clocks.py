"""Moments and how long ago they were: on this machine's clocks, and on a server's."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median_low

import msgspec

from shardq.base.log import Log
from shardq.errors import OutcomeUnknown, StoreUnavailable

__all__ = ["Moment", "ServerClock", "time_of_day", "uptime"]

_CLOCK = getattr(time, "CLOCK_BOOTTIME", None)

_log = Log(__name__)

_INTERVAL = 30_000_000
_RETRY = 2_000_000
_MOST_DRIFT = 500_000  # of this machine's two clocks until they are compared with the server's again
_MOST_DISAGREEMENT = 1_000_000


def uptime() -> int:
    """Return microseconds on a clock that is never set.

    Where the system has such a clock, it counts suspensions too.
    """
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
        """Return an upper bound of the seconds since: the larger of what the two clocks say."""
        return max(uptime() - self.uptime, abs(time_of_day() - self.time_of_day)) / 1_000_000

    def surely_passed(self) -> float:
        """Return a lower bound of the seconds since."""
        return (uptime() - self.uptime) / 1_000_000


class _Measured(msgspec.Struct, frozen=True):
    lead: int  # of the server's clock from this machine's uptime
    apart: int  # by so much this machine's two clocks differed
    until: int  # when to ask again


class ServerClock:
    """Microseconds since 1970 by the servers' clock, carried on by this machine's uptime.

    ``measure`` is given what was known, None at first. It asks one or several nodes by how many microseconds their
    clocks are ahead of this machine's uptime. They are asked anew every 30 seconds; while one thread asks, the others
    go by what is known. A node whose time differs from the others is left out. This machine's time of day does not
    matter. But when it and the uptime differ, the machine may have stood still: then the servers are asked first.
    """

    def __init__(self, measure: Callable[[int | None], Sequence[int]]) -> None:
        self._measure = measure
        self._measured: _Measured | None = None  # and no lock, which a fork could leave locked

    def now(self) -> int:
        """Return the moment; raises StoreUnavailable when it is not known, or in doubt, and no server answers."""
        measured, here, day = self._measured, uptime(), time_of_day()
        if measured is None or abs(day - here - measured.apart) > _MOST_DRIFT:
            measured, here = self._ask(measured), uptime()
        elif here > measured.until:
            measured, here = self._ask_again(measured), uptime()
        return measured.lead + here

    def carried_on(self) -> int:
        """Return the moment by the last measurement, however old.

        Ask as :meth:`now` does when there is none, or when the two clocks of this machine have drifted apart.
        """
        measured, here = self._measured, uptime()
        if measured is None or abs(time_of_day() - here - measured.apart) > _MOST_DRIFT:
            return self.now()
        return measured.lead + here

    def _ask(self, known: _Measured | None) -> _Measured:
        here = uptime()  # from before, so that a standstill while it is measured shows
        apart = time_of_day() - here
        lead = _agreed(self._measure(known.lead if known else None), known)
        self._measured = measured = _Measured(lead, apart, here + _INTERVAL)
        return measured

    def _ask_again(self, known: _Measured) -> _Measured:
        """Ask; without an answer the clock uses its last measurement, and asks again a little later."""
        self._measured = msgspec.structs.replace(known, until=uptime() + _RETRY)
        try:
            return self._ask(known)
        except (StoreUnavailable, OutcomeUnknown):
            return known


def _agreed(leads: Sequence[int], known: _Measured | None) -> int:
    """Return what most say; of two that disagree, the one nearer to what was known, or to the time of day here."""
    agreed = median_low(leads)
    if max(leads) - min(leads) <= _MOST_DISAGREEMENT:
        return agreed
    if len(leads) == 2:
        expected = known.lead if known else time_of_day() - uptime()
        agreed = min(leads, key=lambda lead: abs(lead - expected))
    apart = max(abs(lead - agreed) for lead in leads) / 1_000_000
    _log.warning("the clocks of the servers are %.1f s apart: set them, for example with NTP", apart)
    return agreed
