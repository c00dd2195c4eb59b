"""A server's clock, as far as this client can tell it."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from shardq.errors import OutcomeUnknown, StoreUnavailable

__all__ = ["ServerClock"]

_INTERVAL = 30.0
_RETRY = 2.0


class _Measured(msgspec.Struct, frozen=True):
    offset: int  # of the server's clock from this machine's monotonic one
    until: float  # when to ask again


class ServerClock:
    """Microseconds since 1970 by a server's clock, carried on by this machine's monotonic one.

    ``measure`` asks how many microseconds the server's clock is ahead of this machine's monotonic one. It is asked anew
    every 30 seconds; while one thread asks, the others go by what is known. This machine's own time of day does not
    matter.
    """

    def __init__(self, measure: Callable[[], int]) -> None:
        self._measure = measure
        self._measured: _Measured | None = None  # and no lock, which a fork could leave locked

    def now(self) -> int:
        """Return the moment; raises StoreUnavailable as long as no server has ever told it."""
        measured = self._measured
        if measured is None:
            measured = self._ask()
        elif time.monotonic() > measured.until:
            measured = self._ask_again(measured)
        return measured.offset + time.monotonic_ns() // 1000

    def _ask(self) -> _Measured:
        self._measured = measured = _Measured(self._measure(), time.monotonic() + _INTERVAL)
        return measured

    def _ask_again(self, known: _Measured) -> _Measured:
        """Ask; without an answer the clock goes by what is known, and asks again a little later."""
        self._measured = _Measured(known.offset, time.monotonic() + _RETRY)
        try:
            return self._ask()
        except (StoreUnavailable, OutcomeUnknown):
            return known
