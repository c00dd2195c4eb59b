"""The write-ahead log beside the file: its times tell cheaply that nobody has committed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TypeAlias

__all__ = ["LogWatch", "log_of"]

_Stamp: TypeAlias = tuple[int, int]

# A commit is visible only some time after its last write to the log, and file systems count time in steps of
# some milliseconds: a log that was written more recently says nothing.
_SETTLED = 1_000_000_000
_LOOK_ANYWAY = 1.0


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
