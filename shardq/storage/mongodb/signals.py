"""Waking those who wait for messages.

Who appends or releases writes the queue's name into a small capped collection, unacknowledged, and at most 250 times a
second: what comes meanwhile shares the next time. One thread of each
waiting client reads at its end: the server answers when something comes, so nobody polls.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress

from pymongo import CursorType, WriteConcern
from pymongo.errors import PyMongoError

from shardq.storage.mongodb.faults import DRIVER_ERRORS
from shardq.storage.mongodb.herald import Herald
from shardq.storage.mongodb.session import Session

__all__ = ["SIGNALS", "Signals"]

SIGNALS = "shardq.signal"
_LONGEST_ANSWER = 5_000  # milliseconds that the server keeps a question open
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 5.0
_UNACKNOWLEDGED = WriteConcern(w=0)


class Signals:
    """Counts what became deliverable, by queue. Signals are merged, never dropped.

    When the watch was interrupted, every queue counts as signalled: what came meanwhile is not known.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._seen = threading.local()
        self._start()

    def announce(self, queue: str) -> None:
        """Wake the threads of this client and tell the others."""
        self._after_a_fork()
        self._count(queue)
        self._herald.announce(queue)

    def wait(self, queue: str, seconds: float) -> bool:
        """Return True when something was announced since this thread's last wait, False after ``seconds``."""
        self._after_a_fork()
        self._watch()
        deadline = time.monotonic() + seconds
        seen: dict[str, tuple[int, int]] = self._seen.__dict__.setdefault("counts", {})
        with self._changed:
            while (count := (self._interruptions, self._counts.get(queue, 0))) == seen.get(queue, (0, 0)):
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)
            seen[queue] = count
            return True

    def close(self) -> None:
        """End the watch; a later wait begins it again."""
        self._after_a_fork()
        self._herald.close()
        with self._changed:
            self._stop_watching()

    def _stop_watching(self) -> None:
        self._watcher: threading.Thread | None = None

    def _after_a_fork(self) -> None:
        if self._pid != os.getpid():
            self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition(threading.Lock())
        self._counts: dict[str, int] = {}
        self._interruptions = 0
        self._herald = Herald(self._tell)
        self._stop_watching()

    def _tell(self, queues: set[str]) -> None:
        with suppress(*DRIVER_ERRORS):  # consumers look by themselves now and then
            signals = self._session.collection(SIGNALS).with_options(write_concern=_UNACKNOWLEDGED)
            signals.insert_many([{"q": queue} for queue in queues])

    def _count(self, queue: str) -> None:
        with self._changed:
            self._counts[queue] = self._counts.get(queue, 0) + 1
            self._changed.notify_all()

    def _interrupted(self) -> None:
        with self._changed:
            self._interruptions += 1
            self._changed.notify_all()

    def _watch(self) -> None:
        with self._changed:
            if self._watcher is None:
                self._watcher = threading.Thread(target=self._follow, name="shardq-signals", daemon=True)
                self._watcher.start()

    def _follow(self) -> None:
        """Read at the end of the signals until closed; connect again after errors, with growing pauses."""
        pause = _FIRST_PAUSE
        while self._is_watching():
            try:
                self._read()
                pause = _FIRST_PAUSE
            except (PyMongoError, OSError):
                pass
            if self._is_watching():
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)

    def _read(self) -> None:
        signals = self._session.collection(SIGNALS)
        found = signals.find(cursor_type=CursorType.TAILABLE_AWAIT).max_await_time_ms(_LONGEST_ANSWER)
        with found as cursor:
            next(cursor, None)
            self._interrupted()
            while cursor.alive and self._is_watching():
                for signal in cursor:
                    self._count(signal["q"])

    def _is_watching(self) -> bool:
        return self._watcher is threading.current_thread()
