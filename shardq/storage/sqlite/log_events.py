"""Sleeping until the operating system says that a file's log was written to: Linux's inotify."""

from __future__ import annotations

import os
import select
from pathlib import Path

from inotify_simple import INotify, flags

from shardq.storage.sqlite.log import log_of

__all__ = ["EventSleeper"]

# A commit can be seen a little after its last write to the log: look again after so many milliseconds, each.
_LOOKS = (1, 4, 20)
_LOOK_ANYWAY = 1.0  # seconds; a write from another machine or container makes no event


class EventSleeper:
    """Sleeps without waking up in between. Raises OSError when the system has no watch left to give."""

    def __init__(self, path: Path) -> None:
        self._name = log_of(path).name
        self._events = INotify(nonblocking=True)
        try:
            self._events.add_watch(path.parent, flags.MODIFY | flags.CREATE)
            self._woken = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        except OSError:
            self._events.close()
            raise
        self._calls = _poll(self._woken)
        self._news = _poll(self._woken, self._events.fileno())
        self._looks: list[int] = []

    def sleep(self, seconds: float) -> None:
        """Sleep until there may be news.

        While it looks again after a write, further writes do not wake it: a busy log costs no more than that.
        """
        if self._looks:
            ready = self._calls.poll(min(seconds * 1000, self._looks.pop(0)))
        else:
            ready = self._news.poll(min(seconds, _LOOK_ANYWAY) * 1000)
        for descriptor, _ in ready:
            if descriptor == self._woken:
                os.eventfd_read(self._woken)
            elif any(event.name == self._name for event in self._events.read(0)):
                self._looks = list(_LOOKS)

    def wake(self) -> None:
        """End this sleep, or the next one."""
        os.eventfd_write(self._woken, 1)

    def close(self) -> None:
        """Give the watch back."""
        self._events.close()
        os.close(self._woken)


def _poll(*descriptors: int) -> select.poll:
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return poll
