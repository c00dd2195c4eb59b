"""Sleeping until the operating system says that a file's log was written to: Linux's inotify."""

from __future__ import annotations

import os
import select
from pathlib import Path

from inotify_simple import INotify, flags

from shardq.storage.sqlite.log import log_of

__all__ = ["EventSleeper"]

# A commit can be seen a little after its last write to the log, so it is looked for again: after a pause in which
# further writes go unheard, then after so many milliseconds each, or at the next write.
_LOOKS = (4, 20)
_LONGEST_PAUSE = 20  # milliseconds; the pause is 1 at first, and longer for a log that others keep busy
_LOOK_ANYWAY = 1.0  # seconds; a write from another machine or container makes no event


class EventSleeper:
    """Sleeps without waking up in between. Raises OSError when the system has no watch left to give.

    It lasts: Linux may take 20 ms to give a watch back. What is written between two sleeps ends the second.
    """

    def __init__(self, path: Path) -> None:
        self._name = log_of(path).name
        self.lasting = True
        self._events = INotify(nonblocking=True)
        try:
            self._events.add_watch(path.parent, flags.MODIFY | flags.CREATE)
            self._woken = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        except OSError:
            self._events.close()
            raise
        self._calls = _poll(self._woken)
        self._news = _poll(self._woken, self._events.fileno())
        self._pause = 0  # that is due now, in milliseconds
        self._in_vain = 0  # writes in close succession that this sleeper was woken by
        self._looks: list[int] = []

    def sleep(self, seconds: float) -> None:
        """Sleep until there may be news."""
        if self._pause:
            ready = self._calls.poll(min(seconds * 1000, self._pause))
            self._pause = 0
        elif self._looks:
            ready = self._news.poll(min(seconds * 1000, self._looks.pop(0)))
        else:
            self._in_vain = 0
            ready = self._news.poll(min(seconds, _LOOK_ANYWAY) * 1000)
        for descriptor, _ in ready:
            if descriptor == self._woken:
                os.eventfd_read(self._woken)
            elif self._written():
                self._in_vain += 1
                self._pause, self._looks = min(self._in_vain, _LONGEST_PAUSE), list(_LOOKS)

    def found(self) -> None:
        """There was news: the next pause is short again."""
        self._in_vain = 0

    def wake(self) -> None:
        """End this sleep, or the next one."""
        os.eventfd_write(self._woken, 1)

    def _written(self) -> bool:
        """Tell whether any of the events is of the log."""
        events = self._events.read(0)
        if any(event.mask & flags.IGNORED for event in events):  # the folder is gone, and so is its watch
            self.lasting = False
        return any(event.name == self._name for event in events)

    def close(self) -> None:
        """Give the watch back."""
        self._events.close()
        os.close(self._woken)


def _poll(*descriptors: int) -> select.poll:
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return poll
