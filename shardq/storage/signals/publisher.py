"""Notifying other processes of the queues in which messages became deliverable."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Collection, Generator
from typing import Protocol

from shardq.base.waits import BackgroundThread, ChangeNotifier
from shardq.storage.requests import Finding

__all__ = ["Line", "OpenLine", "Publisher"]

_GAP = 0.004  # seconds between two messages to the others
_LONGEST_PAUSE = 5.0  # seconds between two attempts to tell them
_LAST_WORDS = 3.0  # seconds that a message under way has when the publisher is closed


class Line(Protocol):
    """Carries names of queues to all who listen. Safe for threads, and in forked children."""

    @property
    def name(self) -> str:
        """The line's name and place, without a login, for the log."""
        ...

    @property
    def may_block(self) -> bool:
        """True when ``tell`` may take long while the store is well: no thread that sends may call it then."""
        ...

    def tell(self, queues: Collection[str]) -> bool:
        """Pass the names on. False, and no error, when they have to be passed on again."""
        ...

    def listen(self) -> Generator[Collection[str]]:
        """Yield the names of queues from now on.

        The first item comes when the line stands, and one every few seconds, of no names if there are none. The end
        comes, without an error, when the line is broken.
        """
        ...


class OpenLine(Line, Protocol):
    """A line that a URL names, with its own connections."""

    def diagnose(self) -> Finding:
        """Report whether the line stands, for ``shardq doctor``."""
        ...

    def close(self) -> None:
        """Give up the connections of this process; the line may be used again."""
        ...


class Publisher:
    """Passes the names of queues on to other processes.

    The first name after a pause is passed on at once. Names that follow within four milliseconds are merged, and a
    thread passes them on. On a line that may block, the thread passes on every name. Closing the publisher, or the end
    of the program, passes on what is left. Names that could not be passed on are repeated, with growing pauses.
    """

    def __init__(self, line: Line) -> None:
        self._line = line
        self._lock = threading.RLock()  # a signal's handler may send while the thread below it does
        self._news = ChangeNotifier(self._lock)
        self._pending: set[str] = set()
        self._told_at = 0.0
        self._thread = self._new_thread()
        self._pid = os.getpid()

    def announce(self, queue: str) -> None:
        """Pass the name on, now or within the gap."""
        with self._lock:
            self._pending.add(queue)
            soon = self._line.may_block or time.monotonic() - self._told_at < _GAP
            new = self._thread.prepare(self._work) if soon else None
            if soon and new is None:
                if len(self._pending) == 1:
                    self._news.notify_all()
                return
        if new is None or not self._begins(new):
            self.flush()

    def flush(self) -> bool:
        """Pass on announcements; False when they have to be passed on again."""
        with self._lock:
            pending, self._pending = self._pending, set()
            self._told_at = time.monotonic()
        if not pending or self._line.tell(pending):
            return True
        with self._lock:
            self._pending |= pending
        return False

    def close(self) -> None:
        """Pass on announcements and end the thread."""
        atexit.unregister(self._end)
        with self._lock:
            thread, self._thread = self._thread, self._new_thread()
            self._news.notify_all()
        thread.join(_LAST_WORDS)
        self.flush()

    @staticmethod
    def _new_thread() -> BackgroundThread:
        return BackgroundThread("shardq-publisher")

    def _begins(self, thread: threading.Thread) -> bool:
        """Start the thread; False when that is impossible, as when the program ends."""
        begun = self._thread.begin(thread)
        if begun:
            atexit.register(self._end)
        return begun

    def _end(self) -> None:
        if self._pid == os.getpid():  # a fork inherits what is to be done at the end, but not the thread
            self.close()

    def _work(self) -> None:
        pause = _GAP
        while self._wait(pause):
            pause = _GAP if self.flush() else min(2 * pause, _LONGEST_PAUSE)

    def _wait(self, pause: float) -> bool:
        """Return True when names are to be passed on, that long after the last time; False once it is closed."""
        self._news.wait_for(lambda: self._pending or self._has_ended)
        while not self._has_ended and (left := self._told_at + pause - time.monotonic()) > 0:
            self._news.wait_for(lambda: self._has_ended, left)
        return not self._has_ended

    @property
    def _has_ended(self) -> bool:
        return not self._thread.is_current
