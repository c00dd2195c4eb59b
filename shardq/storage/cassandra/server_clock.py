"""The cluster's clock, as far as this client can tell it."""

from __future__ import annotations

import threading
import time

from shardq.storage.cassandra.session import Session

__all__ = ["ServerClock"]

_NOW = "SELECT now() FROM system.local"
_UUID_EPOCH = 0x01B21DD213814000  # of version 1 UUIDs, in tenths of a microsecond before 1970
_SAMPLES = 5
_INTERVAL = 30.0


class ServerClock:
    """Microseconds since 1970 by a server's clock, carried on by this machine's monotonic one.

    The difference is measured anew every 30 seconds, by the fastest of five questions. This machine's own time of
    day does not matter.
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
                self._offset = min(self._sample() for _ in range(_SAMPLES))[1]
                self._measured_at = time.monotonic()
            return self._offset

    def _sample(self) -> tuple[int, int]:
        before = time.monotonic_ns() // 1000
        ((answer,),) = self._session.read(_NOW, ())
        after = time.monotonic_ns() // 1000
        return after - before, (answer.time - _UUID_EPOCH) // 10 - (before + after) // 2
