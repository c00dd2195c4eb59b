"""The primary's clock, as far as this client can tell it."""

from __future__ import annotations

import calendar
import threading
import time

from shardq.storage.mongodb.session import Session

__all__ = ["ServerClock"]

_SAMPLES = 8
_INTERVAL = 30.0


class ServerClock:
    """Microseconds since 1970 by the primary's clock, carried on by this machine's monotonic one.

    The server tells whole milliseconds, rounded down. Each answer bounds the difference of the clocks from below; the
    highest bound of eight counts, so nothing is due here before it is there. Measured anew every 30 seconds. This
    machine's own time of day does not matter.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._offset: int | None = None
        self._measured_at = 0.0

    def now(self) -> int:
        """Return the moment; asks the server when the last answer is too old."""
        offset = self._offset
        if offset is None or time.monotonic() - self._measured_at > _INTERVAL:
            offset = self._measure()
        return offset + time.monotonic_ns() // 1000

    def _measure(self) -> int:
        with self._lock:
            if self._offset is None or time.monotonic() - self._measured_at > _INTERVAL:
                self._offset = max(self._sample() for _ in range(_SAMPLES))
                self._measured_at = time.monotonic()
            return self._offset

    def _sample(self) -> int:
        with self._session.translated(writing=False):
            answer = self._session.database.command("hello")["localTime"]
        after = time.monotonic_ns() // 1000
        return calendar.timegm(answer.timetuple()) * 1_000_000 + int(answer.microsecond) - after
