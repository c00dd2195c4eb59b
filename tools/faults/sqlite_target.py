"""SQLite: no server, a file on a disk that can be full, and the clock of its clients."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from shardq.testing import RawQueue
from tools.audit.sqlite_rows import read_sqlite

from .disk import Disk
from .proxy import Proxy

__all__ = ["SqliteTarget"]


class _DiskOfTheFile(Disk):
    """When it is filled, the log has just been emptied: SQLite would write over an old one without asking for space."""

    def fill(self) -> None:
        with closing(sqlite3.connect(self.folder / "queue.db", timeout=2)) as file:
            file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        super().fill()


class SqliteTarget:
    """A file; clients are its only processes."""

    name = "sqlite"
    nodes = 0
    patience = 60.0
    huge = 20_000  # the disk is small
    lease = 1.0
    fault_seconds = 15.0
    gap = 0.6
    lasting = 2.0
    rest = 0.0
    tolerance = 0.05
    goes_by_client_clock = True
    has_backups = True
    proxies: tuple[Proxy, ...] = ()

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "disk"
        self._disk = _DiskOfTheFile(self._folder)
        self.disk: Disk | None = None
        self.detours: dict[str, tuple[str, int]] = {}
        self.url = f"sqlite:///{self._folder}/queue.db"

    @property
    def clients_url(self) -> str:
        return self.url

    def start(self) -> None:
        if self._disk.mount():
            self.disk = self._disk

    def stop(self) -> None:
        if self.disk:
            self.disk.unmount()

    def node(self, victim: float) -> int:
        raise NotImplementedError("SQLite has no nodes")

    def pid(self, node: int) -> int:
        raise NotImplementedError("SQLite has no nodes")

    def restart(self) -> None:
        """There is nothing to start."""

    def read(self, queue: str) -> RawQueue:
        return read_sqlite(self._folder / "queue.db", queue)

    def beside(self, folder: Path) -> SqliteTarget:
        other = SqliteTarget(folder)
        other._folder.mkdir(parents=True, exist_ok=True)
        return other
