"""A bound on rows per second."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Throttle"]


class Throttle:
    """Lets rows through at a rate; ``None`` lets them all through."""

    def __init__(
        self,
        rows_per_second: float | None,
        *,
        timer: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate, self._timer, self._sleep = rows_per_second, timer, sleep
        self._free_at = timer()

    def pass_through(self, rows: int) -> None:
        """Wait until so many rows may go."""
        if self._rate is None:
            return
        now = self._timer()
        if self._free_at > now:
            self._sleep(self._free_at - now)
        self._free_at = max(self._free_at, now) + rows / self._rate
