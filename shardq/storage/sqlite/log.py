"""Sleeping until another process commits: its commit is written to the write-ahead log beside the file."""

from __future__ import annotations

import os
import select
import threading
import time
from pathlib import Path
from typing import Protocol, TypeAlias

from shardq.storage.sqlite.connections import FileIdentity, file_identity, log_of

__all__ = ["EventSleeper", "LogWatch", "PollingSleeper", "Sleeper"]

_Stamp: TypeAlias = tuple[int, int]

# A commit is visible only some time after its last write to the log, and file systems count time in steps of
# some milliseconds: a log that was written more recently says nothing.
_SETTLED = 1_000_000_000
_READ_ANYWAY = 1.0

_FIRST_POLL = 0.01
_LONGEST_POLL = 0.075
_GROWTH = 1.5

# A commit can be seen a little after its last write to the log, so it is looked for again: after a pause in which
# further writes go unheard, then after so many milliseconds each, or at the next write. A disk may take a second to
# confirm it. Pauses are twice as long each time for a log that others keep busy.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 20.0  # milliseconds
_LOOKS = (1, 2, 6, 20, *(40,) * 25)
_LOOKS_AFTER_A_COMMIT = (40,)  # it is what was heard, as a rule; another one may have been heard with it
_LOOKS_AT_ITS_REST = (1, 2, 6, 20, 80, 320)  # what is heard at once then is of the same commit, as a rule
_AT_ONCE = 2.0  # milliseconds
_LOOK_ANYWAY = 1.0  # seconds; a write from another machine or container makes no event


class LogWatch:
    """Tells whether the file need not be read again since it was made or last said so."""

    def __init__(self, path: Path) -> None:
        self._log = log_of(path)
        self._restart()

    def quiet(self) -> bool:
        """Return True when nothing was committed; False when something may have been, and once a second."""
        stamp = self._settled_stamp()
        if stamp is not None and stamp == self._stamp and time.monotonic() < self._look_at:
            return True
        self._restart()
        return False

    def _restart(self) -> None:
        self._stamp = self._settled_stamp()
        self._look_at = time.monotonic() + _READ_ANYWAY

    def _settled_stamp(self) -> _Stamp | None:
        try:
            status = self._log.stat()
        except OSError:
            return None
        if status.st_mtime_ns > time.time_ns() - _SETTLED:
            return None
        return status.st_mtime_ns, status.st_size


class Sleeper(Protocol):
    """Sleeps for one thread at a time, from before it looked at the file until after it was woken.

    One that is ``lasting`` is better kept between two waits than made anew.
    """

    lasting: bool

    def sleep(self, seconds: float) -> None:
        """Sleep until there may be news, for that many seconds at most; MAY end sooner."""
        ...

    def found(self) -> None:
        """Be told that there was news."""
        ...

    def committed(self) -> None:
        """Be told that a look has seen a commit."""
        ...

    def wake(self) -> None:
        """End this sleep, or the next one. For other threads."""
        ...

    def close(self) -> None:
        """Give up what it holds."""
        ...


class PollingSleeper:
    """Looks at the times of the log every 10 to 75 ms, which costs next to nothing. Works everywhere."""

    lasting = False

    def __init__(self, path: Path) -> None:
        self._watch = LogWatch(path)
        self._woken = threading.Event()
        self._pause = _FIRST_POLL

    def sleep(self, seconds: float) -> None:
        """Sleep until there may be news."""
        while seconds > 0:
            pause = min(self._pause, seconds)
            seconds -= pause
            if self._woken.wait(pause) or not self._watch.quiet():
                break
            self._pause = min(self._pause * _GROWTH, _LONGEST_POLL)
        self._woken.clear()

    def found(self) -> None:
        """Nothing changes."""

    def committed(self) -> None:
        """Nothing changes."""

    def wake(self) -> None:
        """End this sleep, or the next one."""
        self._woken.set()

    def close(self) -> None:
        """Hold nothing."""


class EventSleeper:
    """Sleeps without waking up in between. Raises OSError when the system has no watch left to give, or none at all.

    It lasts: Linux may take 20 ms to give a watch back. What is written between two sleeps ends the second.
    """

    def __init__(self, path: Path) -> None:
        try:
            from inotify_simple import INotify, flags  # noqa: PLC0415 - slow to import, and for those who wait only
        except ImportError:  # not Linux
            raise OSError("this system tells nobody of writes to a file") from None
        self._ended, self._lost = flags.IGNORED, flags.Q_OVERFLOW
        self._path, here = path, _identity(path)
        log = log_of(path)
        self._folder, self._name = log.parent, log.name
        self.lasting = True
        self._events = INotify(nonblocking=True)
        try:
            self._watched = here, _identity(self._folder)
            self._events.add_watch(self._folder, flags.MODIFY | flags.CREATE)
            self._woken = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        except OSError:
            self._events.close()
            raise
        self._calls = _poll(self._woken)
        self._news = _poll(self._woken, self._events.fileno())
        self._next_pause = _FIRST_PAUSE
        self._looks: list[int] = []
        self._awaits = False  # what was written is looked for
        self._awaits_more = False  # and since the look before this one more was written
        self._saw = False  # the last look has seen a commit

    def sleep(self, seconds: float) -> None:
        """Sleep until there may be news."""
        began = time.monotonic()
        milliseconds = min(seconds, _LOOK_ANYWAY) * 1000
        if self._looks:
            milliseconds = min(milliseconds, self._looks.pop(0))
        else:
            self._next_pause, self._awaits = _FIRST_PAUSE, False
        if heard := self._is_written_within(milliseconds):
            took = (time.monotonic() - began) * 1000
            self._looks = list(_LOOKS_AT_ITS_REST if self._saw and took < _AT_ONCE else _LOOKS)
            pause, self._next_pause = self._next_pause, min(2 * self._next_pause, _LONGEST_PAUSE)
            self._rest(max(0.0, min(pause, seconds * 1000 - took)))
        elif (_identity(self._path), _identity(self._folder)) != self._watched:
            # A link leads elsewhere now, or the folder is gone: it is still watched while a file of it is open.
            self.lasting = False
        self._awaits, self._awaits_more = self._awaits or heard, self._awaits and heard
        self._saw = False

    def found(self) -> None:
        """There was news: the next pause is short again."""
        self._next_pause = _FIRST_PAUSE

    def committed(self) -> None:
        """What was written can be seen: there is less reason to look again.

        If more was written since the last look, that may be of the next commit: it begins when this one can be seen.
        """
        self._saw = True
        if self._looks and self._awaits_more:
            self._looks = list(_LOOKS_AT_ITS_REST)
        elif self._looks:
            self._looks, self._awaits = list(_LOOKS_AFTER_A_COMMIT), False

    def wake(self) -> None:
        """End this sleep, or the next one."""
        os.eventfd_write(self._woken, 1)

    def _is_written_within(self, milliseconds: float) -> bool:
        """Wait for so long; True when the log is written, False when somebody wakes this, too.

        What is written to other files of the folder ends nothing.
        """
        until = time.monotonic() + milliseconds / 1000
        left = milliseconds
        while left > 0 and (ready := self._news.poll(left)):
            if self._is_woken(ready):
                return False
            if self._written():
                return True
            left = (until - time.monotonic()) * 1000
        return False

    def _rest(self, milliseconds: float) -> None:
        """Let writes go unheard for so long. The system's poll counts in whole milliseconds, so it ends the rest."""
        whole = int(milliseconds)
        time.sleep((milliseconds - whole) / 1000)
        self._is_woken(self._calls.poll(whole))

    def _is_woken(self, ready: list[tuple[int, int]]) -> bool:
        woken = any(descriptor == self._woken for descriptor, _ in ready)
        if woken:
            os.eventfd_read(self._woken)
        return woken

    def _written(self) -> bool:
        """Tell whether any of the events is of the log, or whether some were lost as there were too many."""
        events = self._events.read(0)
        if any(event.mask & self._ended for event in events):  # the folder is gone, and so is its watch
            self.lasting = False
        return any(event.name == self._name or event.mask & self._lost for event in events)

    def close(self) -> None:
        """Give the watch back."""
        self._events.close()
        os.close(self._woken)


def _identity(path: Path) -> FileIdentity | None:
    """As `file_identity`; None also for what cannot be looked at."""
    try:
        return file_identity(path)
    except OSError:  # no right to, or a disk that is away; who reads the file says so
        return None


def _poll(*descriptors: int) -> select.poll:
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return poll
