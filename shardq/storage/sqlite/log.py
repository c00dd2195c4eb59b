"""The write-ahead log beside the file: its times tell cheaply that nobody has committed; it must not fill the disk."""

from __future__ import annotations

import shutil
import sqlite3
import time
from pathlib import Path
from typing import TypeAlias

__all__ = ["LogRoom", "LogWatch", "log_of"]

_Stamp: TypeAlias = tuple[int, int]

# A commit is visible only some time after its last write to the log, and file systems count time in steps of
# some milliseconds: a log that was written more recently says nothing.
_SETTLED = 1_000_000_000
_LOOK_ANYWAY = 1.0

_LITTLE = 16 << 20  # bytes; SQLite keeps a log that was emptied as large as that
_SHARE = 2  # times the log's size has to be free beside it


def log_of(path: Path) -> Path:
    """Return the path of the file's log."""
    return path.with_name(path.name + "-wal")


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
        self._look_at = time.monotonic() + _LOOK_ANYWAY

    def _settled_stamp(self) -> _Stamp | None:
        try:
            status = self._log.stat()
        except OSError:
            return None
        if status.st_mtime_ns > time.time_ns() - _SETTLED:
            return None
        return status.st_mtime_ns, status.st_size


class LogRoom:
    """Keeps room on the disk for emptying the log into the file.

    A process that stands still while it reads keeps the log from being emptied. A log that has taken the whole disk
    meanwhile could not be emptied afterwards either, because the file has to grow for that.
    """

    def __init__(self, path: Path) -> None:
        self._log, self._folder = log_of(path), path.parent

    def keep(self, sql: sqlite3.Connection) -> None:
        """Empty a log that is large for what is free; raises SQLITE_BUSY while somebody reads it."""
        try:
            size = self._log.stat().st_size
        except OSError:
            return
        if size <= _LITTLE or size * _SHARE <= (free := _free(self._folder)):
            return
        busy, *_ = sql.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            error = sqlite3.OperationalError(
                f"its log of {size >> 20} MB, beside which {free >> 20} MB are free, must be emptied first"
            )
            error.sqlite_errorcode = sqlite3.SQLITE_BUSY
            raise error


def _free(folder: Path) -> int:
    """Return how many bytes an ordinary user can write there."""
    return shutil.disk_usage(folder).free
