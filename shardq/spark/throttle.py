"""A bound on rows per second."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

__all__ = ["Throttle"]


class Throttle:
    """Lets rows through at a rate, the first ones at once; ``None`` lets them all through. Safe for threads.

    At any moment no more than elapsed seconds x rate have been let through, and the rows that passed last.
    """

    def __init__(
        self,
        rows_per_second: float | None,
        *,
        timer: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate, self._timer, self._sleep = rows_per_second, timer, sleep
        self._lock = threading.Lock()
        self._free_at = timer()

    def pass_through(self, rows: int) -> None:
        """Wait until so many rows may go."""
        if self._rate is None:
            return
        with self._lock:
            now = self._timer()
            begin = max(self._free_at, now)
            self._free_at = begin + rows / self._rate
        if begin > now:
            self._sleep(begin - now)
