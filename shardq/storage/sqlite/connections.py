"""Connections to the file: how one is set up, and the pool from which threads borrow them."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from shardq.errors import StoreUnavailable
from shardq.storage.sqlite import schema
from shardq.storage.sqlite.faults import busy
from shardq.waits import ChangeNotifier

__all__ = [
    "MOST_BLOBS",
    "BlobConnection",
    "Connection",
    "FileIdentity",
    "Pool",
    "file_identity",
]

FileIdentity: TypeAlias = tuple[int, int]
T = TypeVar("T")

# secure_delete: some builds overwrite what is deleted with zeros, which would write every acked body twice.
# fullfsync: on macOS a plain fsync leaves what was written in the cache of the disk; elsewhere it changes nothing.
_SETTINGS = (
    "PRAGMA cache_size = -16384",
    "PRAGMA secure_delete = OFF",
    "PRAGMA wal_autocheckpoint = 1000",
    "PRAGMA journal_size_limit = 16777216",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA fullfsync = ON",
)
_WAIT_FOR_DISK = {True: "PRAGMA synchronous = FULL", False: "PRAGMA synchronous = NORMAL"}


MOST_BLOBS = 1_000
"""After as many handles on blobs a pooled connection is closed, and another one opened when it is needed.

Python's module keeps a weak reference, about 80 bytes, to every handle for as long as the connection is open.
"""


class BlobConnection(sqlite3.Connection):
    """A connection that counts the handles on blobs that were opened on it."""

    blobs = 0

    def blobopen(self, *args: Any, **options: Any) -> sqlite3.Blob:
        """Open a handle."""
        self.blobs += 1
        return super().blobopen(*args, **options)


def file_identity(path: Path | str) -> FileIdentity | None:
    """Return what tells this file from another one at the same path later; None when there is no file."""
    try:
        status = os.stat(path)  # noqa: PTH116 - for every use of the file, and half the cost
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino


def _unreplaced(path: Path, before: FileIdentity | None) -> FileIdentity | None:
    """Return the identity of the file, if no other one has taken its place since it was that."""
    identity = file_identity(path)
    if None not in (before, identity) and before != identity:
        raise busy("it was replaced by another file")
    return identity


class Connection:
    """A connection, which file it leads to, and whether its commits wait for the disk.

    ``identity`` is None for the empty database in memory that answers in place of a missing file.
    """

    def __init__(self, sql: BlobConnection, identity: FileIdentity | None) -> None:
        self.sql = sql
        self.identity = identity
        self._durable: bool | None = None

    @classmethod
    def open(cls, path: Path, *, create: bool = False) -> Connection:
        """Connect to the file, made only if ``create``. Raises SQLite's errors; waits for no lock.

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
            factory=BlobConnection,
        )
        try:
            for setting in _SETTINGS:
                sql.execute(setting)
            return cls(sql, _unreplaced(path, before))
        except BaseException:
            sql.close()
            raise

    @classmethod
    def empty(cls) -> Connection:
        """Return an empty database in memory."""
        sql = sqlite3.connect(
            ":memory:", isolation_level=None, check_same_thread=False, factory=BlobConnection
        )
        schema.apply(sql)
        return cls(sql, None)

    @property
    def reusable(self) -> bool:
        """True when it leads to a file, is in no transaction, as an interrupt may leave it, and keeps little memory."""
        return self.identity is not None and not self.sql.in_transaction and self.sql.blobs < MOST_BLOBS

    def begin(self, *, durable: bool) -> None:
        """Start a transaction that holds the file's write lock; SQLITE_BUSY when another one has it."""
        if durable is not self._durable:
            self.sql.execute(_WAIT_FOR_DISK[durable])
            self._durable = durable
        self.sql.execute("BEGIN IMMEDIATE")

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


class _Loan:
    """What one thread has of the pool, so that an interrupt at any moment leaves it known."""

    epoch = -1
    connection: Connection | None = None


class Pool:
    """Lends up to ``limit`` connections at a time, the one returned last first: its cache is the warmest."""

    def __init__(
        self,
        open_connection: Callable[[], Connection],
        identity: Callable[[], FileIdentity | None],
        *,
        limit: int,
        path: Path,
        patience: float,
    ) -> None:
        self._open = open_connection
        self._identity = identity
        self._limit = limit
        self._path = path
        self._patience = patience
        self._lock = threading.Lock()
        self._changes = ChangeNotifier(self._lock)
        self._idle: list[Connection] = []
        self._lent: dict[_Loan, None] = {}  # entered and left in one step each
        self._epoch = 0
        self._pausing = False

    def use(self, work: Callable[[Connection], T]) -> T:
        """Run work with a connection of this thread alone; raises StoreUnavailable when none comes back in time."""
        loan = _Loan()
        try:
            self._take(loan)
            result = work(loan.connection or self._open_for(loan))
            self._give_back(loan)
        except BaseException as error:
            # After a failed commit or a disk fault its state is in doubt; another one costs a millisecond.
            self._give_back(loan, doubtful=isinstance(error, sqlite3.Error))
            raise
        return result

    def clear(self) -> None:
        """Close the connections that are idle now, and those that are lent when they come back."""
        with self._lock:
            self._epoch += 1
            self._close_idle()

    def pause(self) -> bool:
        """Close all connections and lend none until :meth:`resume`; False when some stay lent."""
        self._pausing = True
        stopped = self._changes.wait_for(self._are_closed, self._patience)
        if not stopped:
            self.resume()
        return stopped

    def resume(self) -> None:
        """Lend again after a successful :meth:`pause`."""
        self._pausing = False
        self._changes.notify_all()

    def _are_closed(self) -> bool:
        if self._lent:
            return False
        self._close_idle()
        return True

    def _take(self, loan: _Loan) -> None:
        """Take a loan, with an idle connection to the file if there is one."""
        with self._lock:
            is_lent = self._lend(loan)
        if not is_lent and not self._changes.wait_for(lambda: self._lend(loan), self._patience):
            raise StoreUnavailable(
                f"SQLite file {self._path}: other threads kept it busy for {self._patience:g} s; use fewer"
            )
        while loan.connection is not None and loan.connection.identity != self._identity():
            loan.connection.close()
            with self._lock:
                loan.connection = self._idle.pop() if self._idle else None

    def _lend(self, loan: _Loan) -> bool:
        if self._pausing or (self._lent and len(self._lent) >= self._limit):
            return False
        loan.epoch = self._epoch
        self._lent[loan] = None
        if self._idle:
            loan.connection = self._idle.pop()
        return True

    def _open_for(self, loan: _Loan) -> Connection:
        loan.connection = connection = self._open()
        return connection

    def _give_back(self, loan: _Loan, *, doubtful: bool = False) -> None:
        """Let another thread take the place, and keep the connection. May be repeated after an interrupt."""
        with self._lock:
            connection = loan.connection
            reusable = loan.epoch == self._epoch and not doubtful
            if loan in self._lent:
                if connection is not None and reusable and connection.reusable:
                    self._idle.append(connection)
                    loan.connection = None
                del self._lent[loan]
                if self._changes.turns:
                    self._changes.notify_all()
        if loan.connection is not None:
            loan.connection.close()

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()
