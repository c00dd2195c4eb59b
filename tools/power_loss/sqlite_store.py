"""SQLite under the recorder: a file, and no server."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import shardq
from shardq.testing import ManualClock

from .checking import Offence, check_integrity, check_messages
from .marks import Ledger
from .recording import Recorder

__all__ = ["SqliteStore"]

_LATER = 86_400 * 1_000_000  # every lease is over by then
_NAME = "queue.db"


class SqliteStore:
    """One file. ``options`` are those of its URL."""

    name = "sqlite"
    window = 0
    names_last = False
    cut_beyond_the_load = True  # also while the file is made and closed

    def __init__(self, options: str = "") -> None:
        self._options = options
        self.url = ""

    def start(self, recorder: Recorder) -> None:
        self.url = f"sqlite:///{recorder.folder / _NAME}{self._options}"

    def stop(self) -> None:
        """There is nothing to stop."""

    def check(self, image: Path, ledger: Ledger, at: int, ended_at: int, junk: bytes) -> Iterator[Offence]:
        """Open an image; nothing comes when every promise was kept."""
        path = image / "data" / _NAME
        if junk:  # the index of the log is not synced: anything may be in it
            path.with_name(f"{_NAME}-shm").write_bytes(junk)
        clock = ManualClock(ended_at + _LATER)
        yield from check_integrity(path)
        connect = partial(shardq.connect, f"sqlite:///{path}?synchronous=normal", clock=clock)
        yield from check_messages(connect, ledger, at)
        yield from check_integrity(path)
