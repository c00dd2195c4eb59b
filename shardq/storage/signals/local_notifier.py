"""Waking the threads of this process that wait for messages."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

__all__ = ["Switchboard"]


class Switchboard:
    """Counts what became deliverable, by queue. Announcements are merged, never dropped."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._counts: dict[str, int] = {}
        self._of_all = 0
        self._seen = threading.local()

    def announce(self, queues: Iterable[str]) -> None:
        """Wake the threads that wait for these queues."""
        with self._changed:
            for queue in queues:
                self._counts[queue] = self._counts.get(queue, 0) + 1
            self._changed.notify_all()

    def announce_all(self) -> None:
        """Wake all threads: what became deliverable is not known."""
        with self._changed:
            self._of_all += 1
            self._changed.notify_all()

    def wait(self, queue: str, seconds: float) -> bool:
        """Return True when something was announced since this thread's last wait, False after ``seconds``."""
        deadline = time.monotonic() + seconds
        seen: dict[str, tuple[int, int]] = self._seen.__dict__.setdefault("counts", {})
        with self._changed:
            while (count := (self._of_all, self._counts.get(queue, 0))) == seen.get(queue, (0, 0)):
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)
            seen[queue] = count
            return True
