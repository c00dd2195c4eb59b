"""Waking the threads of this process that wait for messages.

Cassandra tells nobody of a write. What one client of a process appends, another of the same process must see
at once, so the switchboard is the process's.
"""

from __future__ import annotations

import os
import threading
import time

__all__ = ["announce", "wait"]


class _Switchboard:
    """Counts what became deliverable, by queue."""

    def __init__(self) -> None:
        self._start()
        self._seen = threading.local()
        os.register_at_fork(after_in_child=self._start)

    def announce(self, queue: str) -> None:
        with self._changed:
            self._counts[queue] = self._counts.get(queue, 0) + 1
            self._changed.notify_all()

    def wait(self, queue: str, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        seen: dict[str, int] = self._seen.__dict__.setdefault("counts", {})
        with self._changed:
            while self._counts.get(queue, 0) == seen.get(queue, 0):
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)
            seen[queue] = self._counts.get(queue, 0)
            return True

    def _start(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._counts: dict[str, int] = {}


_switchboard = _Switchboard()
announce = _switchboard.announce
wait = _switchboard.wait
