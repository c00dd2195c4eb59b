"""One connection to the file, set up for queues."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TypeAlias

from shardq.storage.sqlite import schema

__all__ = ["Connection", "FileIdentity", "file_identity"]

FileIdentity: TypeAlias = tuple[int, int]

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


def file_identity(path: Path) -> FileIdentity | None:
    """Return what tells this file from another one at the same path later; None when there is no file."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino


class Connection:
    """A connection, which file it leads to, and whether its commits wait for the disk.

    ``identity`` is None for the empty database in memory that answers in place of a missing file.
    """

    def __init__(self, sql: sqlite3.Connection, identity: FileIdentity | None) -> None:
        self.sql = sql
        self.identity = identity
        self._durable: bool | None = None

    @classmethod
    def open(cls, path: Path, *, create: bool = False) -> Connection:
        """Connect to the file, made only if ``create``. Raises SQLite's errors; waits for no lock."""
        sql = sqlite3.connect(
            f"{path.as_uri()}?mode={'rwc' if create else 'rw'}",
            uri=True,
            timeout=0,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        try:
            for setting in _SETTINGS:
                sql.execute(setting)
        except BaseException:
            sql.close()
            raise
        return cls(sql, file_identity(path))

    @classmethod
    def empty(cls) -> Connection:
        """Return an empty database in memory."""
        sql = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        schema.apply(sql)
        return cls(sql, None)

    @property
    def reusable(self) -> bool:
        """True when it leads to a file and no transaction is open on it, as an interrupt may leave one."""
        return self.identity is not None and not self.sql.in_transaction

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
        """Give up the connection."""
        self.sql.close()
