"""Telling other processes in which queues something became deliverable."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable

__all__ = ["Herald"]

_GAP = 0.004  # seconds between two messages to the others


class Herald:
    """Passes names of queues on, merged: at once after a pause, else with all that come within four milliseconds.

    What was announced is passed on by a thread soon, by :meth:`flush`, or when the program ends.
    """

    def __init__(self, tell: Callable[[set[str]], None]) -> None:
        self._tell = tell
        self._news = threading.Condition(threading.Lock())
        self._pending: set[str] = set()
        self._told_at = 0.0
        self._thread: threading.Thread | None = None

    def announce(self, queue: str) -> None:
        """Pass the name on, now or within the gap."""
        with self._news:
            self._pending.add(queue)
            if time.monotonic() - self._told_at < _GAP:
                if self._thread is None:
                    self._begin()
                if len(self._pending) == 1:
                    self._news.notify()
                return
        self.flush()

    def flush(self) -> None:
        """Pass on what was announced."""
        with self._news:
            pending, self._pending = self._pending, set()
            self._told_at = time.monotonic()
        if pending:
            self._tell(pending)

    def close(self) -> None:
        """Pass on what was announced and end the thread."""
        atexit.unregister(self.flush)
        with self._news:
            self._thread = None
            self._news.notify()
        self.flush()

    def _begin(self) -> None:
        atexit.register(self.flush)
        self._thread = threading.Thread(target=self._work, name="shardq-herald", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while self._wait():
            time.sleep(_GAP)
            self.flush()

    def _wait(self) -> bool:
        """Return True when something is to be passed on, False when the herald is closed."""
        with self._news:
            while not self._pending and self._thread is threading.current_thread():
                self._news.wait()
            return self._thread is threading.current_thread()
