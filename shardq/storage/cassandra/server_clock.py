"""The cluster's clock, as far as this client can tell it."""

from __future__ import annotations

import time

import msgspec

from shardq.errors import OutcomeUnknown, StoreUnavailable
from shardq.storage.cassandra.session import Session

__all__ = ["ServerClock"]

_NOW = "SELECT now() FROM system.local"
_UUID_EPOCH = 0x01B21DD213814000  # of version 1 UUIDs, in tenths of a microsecond before 1970
_SAMPLES = 5
_INTERVAL = 30.0
_RETRY = 2.0


class _Measured(msgspec.Struct, frozen=True):
    offset: int  # of the cluster's clock from this machine's monotonic one
    until: float  # when to ask again


class ServerClock:
    """Microseconds since 1970 by a server's clock, carried on by this machine's monotonic one.

    The difference is measured anew every 30 seconds, by the fastest of five questions; while one thread asks, the
    others go by what is known. This machine's own time of day does not matter.
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
        offset = min(self._sample() for _ in range(_SAMPLES))[1]
        self._measured = _Measured(offset, time.monotonic() + _INTERVAL)
        return self._measured

    def _sample(self) -> tuple[int, int]:
        before = time.monotonic_ns() // 1000
        ((answer,),) = self._session.read(_NOW, ())
        after = time.monotonic_ns() // 1000
        return after - before, (answer.time - _UUID_EPOCH) // 10 - (before + after) // 2
