"""Connections to the file: how one is set up, and the pool from which threads borrow them."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from io import FileIO
from pathlib import Path
from typing import TypeAlias

from shardq.storage.pooling import Pool
from shardq.storage.sqlite import schema
from shardq.storage.sqlite.faults import busy, translate_os
from shardq.storage.sqlite.tables import MOST_BLOBS, BlobConnection, PrefixedConnection

__all__ = ["SIGNAL", "Connection", "FileIdentity", "FilePool", "file_identity", "open_signal"]

FileIdentity: TypeAlias = tuple[int, int]

# secure_delete: some builds overwrite deleted data with zeros, which would write every acked body twice. fullfsync: on
# macOS a plain fsync leaves written data in the cache of the disk; elsewhere it changes nothing.
_SETTINGS = (
    "PRAGMA cache_size = -16384",
    "PRAGMA secure_delete = OFF",
    "PRAGMA wal_autocheckpoint = 1000",
    "PRAGMA journal_size_limit = 16777216",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA fullfsync = ON",
)

SIGNAL = "-signal"
"""The end of the name of the file whose close is the signal, beside the database of an application."""

_FULL, _NORMAL = "PRAGMA synchronous = FULL", "PRAGMA synchronous = NORMAL"
_EXTRA = "PRAGMA synchronous = EXTRA"  # as FULL, and the removal of a rollback journal is on the disk too


def file_identity(path: Path | str) -> FileIdentity | None:
    """Return the identity of this file, which a later one at its path does not have; None without a file.

    Raises StoreUnavailable.
    """
    try:
        status = os.stat(path)  # noqa: PTH116 - for every use of the file, and half the cost
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise translate_os(error, path) from error
    return status.st_dev, status.st_ino


def open_signal(path: Path | str) -> FileIO:
    """Open the file beside the database of an application that stands for its news. It is made if it is missing."""
    file = os.path.realpath(path)
    rights = os.stat(file).st_mode & 0o666  # noqa: PTH116
    return FileIO(os.open(file + SIGNAL, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, rights))


def _signal_of(path: Path) -> FileIO | None:
    with suppress(OSError):  # those who wait look once a second
        return open_signal(path)
    return None


def _unreplaced(path: Path, before: FileIdentity | None) -> FileIdentity | None:
    """Return the identity of the file, if no other one has taken its place since it was that."""
    identity = file_identity(path)
    if None not in (before, identity) and before != identity:
        raise busy("it was replaced by another file")
    return identity


class Connection:
    """A connection, which file it leads to, and whether its commits wait for the disk.

    The ``target`` is None for the empty database in memory that answers in place of a missing file. After a failed
    commit or a fault of the disk its state ``is_doubtful``: another connection costs a millisecond.
    """

    is_doubtful = False
    waits_for_disk: bool | None = None
    """Whether its commits do; None before the first of its transactions."""

    def __init__(
        self,
        sql: BlobConnection,
        target: FileIdentity | None,
        journal: str = "wal",
        signal: FileIO | None = None,
    ) -> None:
        self.sql = sql
        self.target = target
        self._signal = (
            signal  # the system closes it, which wakes others, for a process that dies after a commit
        )
        # With a rollback journal a commit that does not wait might damage the file, so all of them wait.
        self.waits = {True: _FULL, False: _NORMAL} if journal == "wal" else {True: _EXTRA, False: _EXTRA}

    @classmethod
    def open(cls, path: Path, *, create: bool = False, prefix: str = "") -> Connection:
        """Connect to the file, made only if ``create``. Raises SQLite's errors; waits for no lock.

        With a ``prefix`` it is the database of an application, whose journal and pages stay as they are.

        Raises SQLITE_BUSY also when the file was replaced meanwhile: it may be connected to the one that is gone.
        """
        before = None if create else file_identity(path)
        sql = sqlite3.connect(
            f"{path.as_uri()}?mode={'rwc' if create else 'rw'}",
            uri=True,
            timeout=0,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
            factory=PrefixedConnection if prefix else BlobConnection,
        )
        try:
            journal = _named(sql, prefix)
            for setting in _SETTINGS:
                sql.execute(setting)
            return cls(sql, _unreplaced(path, before), journal, _signal_of(path) if prefix else None)
        except BaseException:
            sql.close()
            raise

    @classmethod
    def empty(cls, prefix: str = "") -> Connection:
        """Return an empty database in memory."""
        kind = PrefixedConnection if prefix else BlobConnection
        sql = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False, factory=kind)
        _named(sql, prefix)
        schema.apply(sql)
        return cls(sql, None)

    @property
    def is_usable(self) -> bool:
        """False if it leads to no file, is in a transaction, as an interrupt may leave it, or keeps much memory."""
        sql = self.sql
        return not (self.is_doubtful or self.target is None or sql.in_transaction or sql.blobs >= MOST_BLOBS)

    def roll_back(self) -> None:
        """End the transaction, if there is one, without a change."""
        if self.sql.in_transaction:
            self.sql.execute("ROLLBACK")

    def close(self) -> None:
        """Give up the connection, and what is not committed.

        SQLite closes it only when nothing refers to a cursor on it any more, and keeps its locks until then.
        """
        try:
            with suppress(sqlite3.Error):
                self.roll_back()
        finally:
            self.sql.close()
            if self._signal is not None:
                self._signal.close()


def _named(sql: sqlite3.Connection, prefix: str) -> str:
    """Let statements find the tables by the prefix; returns the kind of journal that the file has."""
    if not isinstance(sql, PrefixedConnection):
        return "wal"
    sql.use(prefix)
    return str(sql.execute("PRAGMA journal_mode").fetchone()[0])


class FilePool(Pool[Connection]):
    """The connections of a process to the file: none to one that has taken its place, and none while it pauses."""

    def __init__(
        self, open_connection: Callable[[], Connection], *, limit: int, path: Path, patience: float
    ) -> None:
        super().__init__(
            open_connection,
            limit=limit,
            patience=patience,
            shortage=f"SQLite file {path}: other threads kept it busy for {patience:g} s; use fewer",
            target=partial(file_identity, str(path)),
        )
        self._most = limit

    def pause(self) -> bool:
        """Close all connections and lend none until :meth:`resume`; False when some stay lent."""
        self._limit = 0
        stopped = self._changes.wait_for(self._are_closed, self._patience)
        if not stopped:
            self.resume()
        return stopped

    def resume(self) -> None:
        """Lend again after a successful :meth:`pause`."""
        self._limit = self._most
        self._changes.notify_all()

    def _are_closed(self) -> bool:
        if self._lent:
            return False
        self._close_idle()
        return True
