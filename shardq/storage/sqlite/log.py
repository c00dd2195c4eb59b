"""The log beside the file: its place, the room that it needs, and sleeping until another process opens and closes it.

A process does that when it has committed what may be waited for.
"""

from __future__ import annotations

import os
import select
import sqlite3
import sys
import time
from io import FileIO
from pathlib import Path
from typing import Protocol, TypeAlias

from shardq.base.waits import Flag
from shardq.errors import StoreUnavailable
from shardq.storage.sqlite.connections import SIGNAL, FileIdentity, file_identity, open_signal
from shardq.storage.sqlite.faults import busy

__all__ = [
    "LOG",
    "DiskReserve",
    "EventSleeper",
    "PollingSleeper",
    "Sleeper",
    "log_of",
    "notify_processes",
    "side_files",
]

_Stamp: TypeAlias = tuple[int, int]

LOG = "-wal"
"""The end of the name of the file whose close is the signal, beside a file of queues."""

_LITTLE = 16 << 20  # bytes; SQLite keeps a log that was emptied as large as that
_SHARE = 2  # times the log's size has to be free beside it

# A commit is visible only some time after its last write to the log, and file systems count time in steps of some
# milliseconds. A log that was written more recently proves nothing.
_SETTLED = 1_000_000_000
READ_ANYWAY = 1.0

_FIRST_POLL = 0.01
_LONGEST_POLL = 0.075
_GROWTH = 1.5

_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.02
POLL_ANYWAY = 1.0  # seconds; a process of another machine or container is not heard


def log_of(path: Path) -> Path:
    """Return the path of the file's log: it is beside the file that a symbolic link leads to."""
    return side_files(path)[0]


def side_files(path: Path) -> tuple[Path, ...]:
    """Return the paths of all that SQLite may keep beside the file, the log first."""
    file = Path(os.path.realpath(path))
    return tuple(file.with_name(file.name + ending) for ending in ("-wal", "-shm", "-journal"))


class DiskReserve:
    """Keeps room on the disk for emptying the log into the file.

    A process that stands still while it reads keeps the log from being emptied. A log that has taken the whole disk
    meanwhile could not be emptied afterwards either, because the file has to grow for that.
    """

    def __init__(self, path: Path) -> None:
        log = log_of(path)
        self._log, self._folder = str(log), log.parent

    def keep(self, sql: sqlite3.Connection) -> None:
        """Empty a log that is large for the free space; raises SQLITE_BUSY while it is read."""
        try:
            size = os.stat(self._log).st_size  # noqa: PTH116 - before every write, and half the cost
        except OSError:
            return
        if size <= _LITTLE or size * _SHARE <= (free := _free(self._folder)):
            return
        kept, *_ = sql.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if kept:
            raise busy(
                f"its log of {size >> 20} MB, beside which {free >> 20} MB are free, must be emptied first"
            )


def _free(folder: Path) -> int:
    """Return how many bytes an ordinary user can write there."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def notify_processes(path: str, ending: str = LOG) -> None:
    """Notify every process that sleeps until there is news in the file, once this can be seen.

    The log is opened and closed. That changes nothing, and needs no lock. SQLite holds none on its log, so none is
    lost with the descriptor either (os_unix.c locks main databases only, and the -shm). Processes that are not
    notified read once a second. The database of an application may have a rollback journal in place of the log: there
    it is a ``SIGNAL`` file.
    """
    if sys.platform != "linux":  # nobody listens elsewhere
        return
    try:  # few calls: after each send
        try:
            FileIO(path + ending).close()
        except (
            FileNotFoundError
        ):  # the path is a link, beside which there is none; or this is its first notice
            (open_signal(path) if ending == SIGNAL else FileIO(os.path.realpath(path) + ending)).close()
    except OSError:
        return


class LogWatch:
    """Reports whether the file need not be read again since it was made or last said so."""

    def __init__(self, path: Path) -> None:
        self._log = log_of(path)
        self._restart()

    def quiet(self) -> bool:
        """Return True when nothing was committed; False when something may have been, and once a second."""
        stamp = self._settled_stamp()
        if stamp is not None and stamp == self._stamp and time.monotonic() < self._read_due:
            return True
        self._restart()
        return False

    def _restart(self) -> None:
        self._stamp = self._settled_stamp()
        self._read_due = time.monotonic() + READ_ANYWAY

    def _settled_stamp(self) -> _Stamp | None:
        try:
            status = self._log.stat()
        except OSError:
            return None
        if status.st_mtime_ns > time.time_ns() - _SETTLED:
            return None
        return status.st_mtime_ns, status.st_size


class Sleeper(Protocol):
    """Sleeps for the thread that watches the file, from before it reads until after it is woken.

    When one is not ``lasting``, the thread makes a new one after the sleep: the system may have a watch again.
    """

    lasting: bool

    def sleep(self, seconds: float) -> None:
        """Sleep until there may be news, for that many seconds at most; MAY end sooner."""
        ...

    def found(self) -> None:
        """Note that there was news."""
        ...

    def wake(self) -> None:
        """End this sleep, or the next one. For other threads."""
        ...

    def close(self) -> None:
        """Release its resources."""
        ...


class PollingSleeper:
    """Reads the times of the log every 10 to 75 ms, which costs next to nothing. Works everywhere."""

    lasting = False

    def __init__(self, path: Path) -> None:
        self._watch = LogWatch(path)
        self._woken = Flag()
        self.pause = _FIRST_POLL

    def sleep(self, seconds: float) -> None:
        """Sleep until there may be news."""
        while seconds > 0:
            pause = min(self.pause, seconds)
            seconds -= pause
            if self._woken.wait(pause) or not self._watch.quiet():
                break
            self.pause = min(self.pause * _GROWTH, _LONGEST_POLL)
        self._woken.clear()

    def found(self) -> None:
        """Change nothing."""

    def wake(self) -> None:
        """End this sleep, or the next one."""
        self._woken.set()

    def close(self) -> None:
        """Hold nothing."""


class EventSleeper:
    """Sleeps without waking up in between. Raises OSError when the system has no watch left to give, or none at all.

    It is woken when a process closes the log: by `notify_processes`, once its news can be seen, or at its end,
    whatever that interrupted. Where the file is reported again and again without news for this thread, the next report
    waits for a pause. It lasts: Linux may take 20 ms to give a watch back. News between two sleeps end the second.
    """

    def __init__(self, path: Path, ending: str = LOG) -> None:
        try:
            from inotify_simple import INotify, flags  # noqa: PLC0415 - slow to import, and for those who wait only
        except ImportError:  # not Linux
            raise OSError("this system does not report changes of a file") from None
        self._ended, self._lost = flags.IGNORED, flags.Q_OVERFLOW
        self._path, here = path, _identity(path)
        file = Path(os.path.realpath(path))
        self._folder, self._name = file.parent, file.name + ending
        self.lasting = True
        self._events = INotify(nonblocking=True)
        try:
            self._watched = here, _identity(self._folder)
            self._events.add_watch(self._folder, flags.CLOSE_NOWRITE | flags.CLOSE_WRITE)
            self._woken = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        except OSError:
            self._events.close()
            raise
        self._calls = _poll(self._woken)
        self._news = _poll(self._woken, self._events.fileno())
        self.pause = 0.0

    def sleep(self, seconds: float) -> None:
        """Sleep until there may be news."""
        until = time.monotonic() + min(seconds, POLL_ANYWAY)
        if self._is_woken(self._calls.poll(min(self.pause, seconds) * 1000)):
            return
        rested = time.monotonic()
        if not self.is_told(until) and (_identity(self._path), _identity(self._folder)) != self._watched:
            # A link leads elsewhere now, or the folder is gone: it is still watched while a file of it is open.
            self.lasting = False
        was_quiet = time.monotonic() - rested > _LONGEST_PAUSE
        self.pause = 0.0 if was_quiet else min(2 * self.pause or _FIRST_PAUSE, _LONGEST_PAUSE)

    def found(self) -> None:
        """Note that there was news: the next ones are looked for at once."""
        self.pause = 0.0

    def wake(self) -> None:
        """End this sleep, or the next one."""
        os.eventfd_write(self._woken, 1)

    def close(self) -> None:
        """Give the watch back."""
        self._events.close()
        os.close(self._woken)

    def is_told(self, until: float) -> bool:
        """Wait until then; True when there may be news, or it is woken.

        Changes of other files of the folder end nothing.
        """
        while (left := until - time.monotonic()) > 0 and (ready := self._news.poll(left * 1000)):
            is_woken, is_heard = self._is_woken(ready), self._is_heard()
            if is_woken or is_heard:
                return True
        return False

    def _is_woken(self, ready: list[tuple[int, int]]) -> bool:
        woken = any(descriptor == self._woken for descriptor, _ in ready)
        if woken:
            os.eventfd_read(self._woken)
        return woken

    def _is_heard(self) -> bool:
        """Return whether any of the events is of the log, or whether some were lost as there were too many."""
        events = self._events.read(0)
        if any(event.mask & self._ended for event in events):  # the folder is gone, and so is its watch
            self.lasting = False
        return any(event.name == self._name or event.mask & self._lost for event in events)


def _identity(path: Path) -> FileIdentity | None:
    """Return `file_identity`; None also for a file that cannot be read."""
    try:
        return file_identity(path)
    except StoreUnavailable:  # no right to, or a disk that is unreachable; readers of the file report it
        return None


def _poll(*descriptors: int) -> select.poll:
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return poll
