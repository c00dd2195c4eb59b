"""A thread that sweeps beside whoever receives."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

__all__ = ["SweepThread"]

CLOSING_SECONDS = 5.0  # for which the end of who receives waits for a sweep that is under way


class SweepThread:
    """Does one sweep at a time, which must raise nothing; none where no thread can be started."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None

    @property
    def is_busy(self) -> bool:
        """True while a sweep is under way."""
        return self._thread is not None and self._thread.is_alive()

    def begin(self, sweep: Callable[[], None]) -> None:
        """Begin a sweep; for who has seen that the thread is not busy."""
        thread = threading.Thread(target=sweep, name="shardq-sweep", daemon=True)
        with suppress(RuntimeError):  # the interpreter is about to end, or there are too many threads
            thread.start()
            self._thread = thread

    def close(self) -> None:
        """Wait for a sweep that is under way, for some seconds."""
        if self._thread is not None:
            self._thread.join(CLOSING_SECONDS)
