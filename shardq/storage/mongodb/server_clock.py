"""The primary's clock, as far as this client can tell it."""

from __future__ import annotations

import calendar
import time

import msgspec

from shardq.errors import OutcomeUnknown, StoreUnavailable
from shardq.storage.mongodb.session import Session

__all__ = ["ServerClock"]

_SAMPLES = 8
_INTERVAL = 30.0
_RETRY = 2.0


class _Measured(msgspec.Struct, frozen=True):
    offset: int  # of the primary's clock from this machine's monotonic one
    until: float  # when to ask again


class ServerClock:
    """Microseconds since 1970 by the primary's clock, carried on by this machine's monotonic one.

    The server tells whole milliseconds, rounded down. Each answer bounds the difference of the clocks from below; the
    highest bound of eight counts, so nothing is due here before it is there. Measured anew every 30 seconds; while one
    thread asks, the others go by what is known. This machine's own time of day does not matter.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._measured: _Measured | None = None  # and no lock, which a fork could leave locked

    def now(self) -> int:
        """Return the moment; raises StoreUnavailable as long as no server has ever told it."""
        measured = self._measured
        if measured is None:
            measured = self._measure()
        elif time.monotonic() > measured.until:
            measured = self._measure_again(measured)
        return measured.offset + time.monotonic_ns() // 1000

    def _measure_again(self, known: _Measured) -> _Measured:
        """Measure; without an answer the clock goes by what is known, and asks again a little later."""
        self._measured = _Measured(known.offset, time.monotonic() + _RETRY)
        try:
            return self._measure()
        except (StoreUnavailable, OutcomeUnknown):
            return known

    def _measure(self) -> _Measured:
        offset = max(self._sample() for _ in range(_SAMPLES))
        self._measured = _Measured(offset, time.monotonic() + _INTERVAL)
        return self._measured

    def _sample(self) -> int:
        with self._session.translated(writing=False):
            answer = self._session.database.command("hello")["localTime"]
        after = time.monotonic_ns() // 1000
        return calendar.timegm(answer.timetuple()) * 1_000_000 + int(answer.microsecond) - after
