"""Transactions on the file, from any thread of any process."""

from __future__ import annotations

import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import ParamSpec, TypeVar, TypeVarTuple, Unpack

from shardq.errors import InvalidSetting
from shardq.storage.per_process import watch_forks
from shardq.storage.sqlite import schema
from shardq.storage.sqlite.connections import Connection, FileIdentity, FilePool, file_identity
from shardq.storage.sqlite.faults import damage, is_busy, translate, without_folder
from shardq.storage.sqlite.guarantees import find_damage
from shardq.storage.sqlite.log import DiskReserve, log_of

__all__ = ["Patience", "Session", "check_path", "check_synchronous", "check_timeout"]

P = ParamSpec("P")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_MOST_READERS = 64
_SHORTEST_TURN = 5.0  # seconds that threads of one process wait for each other at least

_LONGEST_REST = 0.05  # seconds
_LONGEST = 0.004
_SHORTEST = 0.0002


class Session:
    """Runs functions in transactions. While there is no file, they run on an empty database; nothing is made.

    All writers of a process take turns on one connection, whose cache stays warm that way; readers beside them have
    others. None is open while the process forks. SQLite keeps the file's locks per process, so a connection that a
    child inherits would spoil the locks of those that the child opens.
    """

    def __init__(
        self, path: Path, now: Callable[[], int], *, durable: bool, patience: float, prefix: str = ""
    ) -> None:
        self.path, self._place, self.now, self.prefix = path, str(path), now, prefix
        self._durable = durable
        self._longest_turn = max(patience, _SHORTEST_TURN)
        self.patience = Patience(patience)
        self._log_reserve = DiskReserve(path)
        self._abandoned: list[FilePool] = []
        self._start()
        watch_forks(self)

    def _start(self) -> None:
        self._writers = FilePool(self._open, limit=1, path=self.path, patience=self._longest_turn)
        self._readers = FilePool(self._open, limit=_MOST_READERS, path=self.path, patience=self._longest_turn)
        self._paused: tuple[FilePool, ...] = ()
        self._migrating, self._held_off = threading.Lock(), False
        self._began = self._free_until = 0.0  # of the last change, in the database of an application

    def read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Return the result of ``query`` in one state of the file; it may be called again when that is locked."""
        return self._readers.use(self._query, query)

    def write(
        self,
        change: Callable[[sqlite3.Connection, Unpack[Ts], int], T],
        *args: *Ts,
        durable: bool = True,
        committed: Callable[[], None] | None = None,
    ) -> T:
        """Run ``change`` alone among all processes and commit it, or roll it back when it raises.

        It is given the arguments and the moment when it begins. Without ``durable`` a power failure may undo it, though
        never before a later durable change. ``committed`` is called before any other change of this process begins.
        """
        return self._writers.use(self._change, change, args, durable and self._durable, committed)

    def _query(self, connection: Connection, query: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return self.patience(_query, connection, query)
        except sqlite3.Error as error:
            connection.is_doubtful = True
            raise translate(error, self.path) from error

    def _change(
        self,
        connection: Connection,
        change: Callable[[sqlite3.Connection, Unpack[Ts], int], T],
        args: tuple[*Ts],
        durable: bool,
        committed: Callable[[], None] | None,
    ) -> T:
        committing = False
        if self.prefix:
            self._leave_to_others()
        try:
            try:
                self.begin(connection, durable=durable)
            except sqlite3.Error as error:
                self.patience.repeat(error, self.begin, connection, durable=durable)
            if self.prefix:
                self._began = time.monotonic()
            result = change(connection.sql, *args, self.now())
            committing = True
            try:
                connection.sql.execute("COMMIT")
            except sqlite3.Error as error:  # with a rollback journal it waits for those who read
                self.patience.repeat(error, connection.sql.execute, "COMMIT")
            if self.prefix:
                ended = time.monotonic()
                self._free_until = ended + min(ended - self._began, _LONGEST_REST)
        except sqlite3.Error as error:
            connection.is_doubtful = True
            raise translate(error, self.path, committing=committing) from error
        except BaseException:
            with suppress(sqlite3.Error):  # a connection that is in a transaction is not used again
                connection.roll_back()
            raise
        if committed is not None:
            committed()
        return result

    def _leave_to_others(self) -> None:
        """Wait until the lock was free for as long as this process had it last.

        The connections of an application wait as SQLite does: they try ever more seldom. Without a rest a worker that
        is never idle would let them wait for seconds.
        """
        if (rest := self._free_until - time.monotonic()) > 0:
            time.sleep(rest)

    def begin(self, connection: Connection, *, durable: bool) -> None:
        """Start a transaction that holds the file's write lock; SQLITE_BUSY when another one has it."""
        sql = connection.sql
        self._log_reserve.keep(sql)
        if durable is not connection.waits_for_disk:
            sql.execute(connection.waits[durable])
            connection.waits_for_disk = durable
        sql.execute("BEGIN IMMEDIATE")

    def ping(self) -> None:
        """Read from the file; one that is not there has to have a folder. Raises StoreUnavailable."""
        if self.identity() is None and not self.path.parent.is_dir():
            raise without_folder(self.path)
        self.read(lambda sql: sql.execute("PRAGMA schema_version").fetchone())

    def check_integrity(self, most_bytes: int) -> None:
        """Raise StoreUnavailable if the file is damaged, or empty. A file above ``most_bytes`` is not read."""
        if self.identity() is None:
            return
        size = _size(self.path)
        if size + _size(log_of(self.path)) > most_bytes:
            return
        if found := self.read(find_damage) if size else "it is empty":
            raise translate(damage(found), self.path)

    def apply_schema(self) -> None:
        """Make the file, if there is none, and bring its schema up to date."""
        try:
            with self._migrating:
                self.patience(self._apply_schema)
        except sqlite3.Error as error:
            raise translate(error, self.path) from error

    def identity(self) -> FileIdentity | None:
        """Return the identity of this file, which a later one at the same path does not have; None without a file."""
        return file_identity(self._place)

    def close(self) -> None:
        """Close every connection; later use opens new ones."""
        self._writers.clear()
        self._readers.clear()

    def before_fork(self) -> None:
        """Close every connection and keep new ones from being opened."""
        self._held_off = self._migrating.acquire(timeout=self._longest_turn)
        self._paused = tuple(pool for pool in (self._writers, self._readers) if pool.pause())

    def after_fork_in_parent(self) -> None:
        """Continue after a fork."""
        paused, self._paused = self._paused, ()
        for pool in paused:
            pool.resume()
        if self._held_off:
            self._migrating.release()

    def after_fork_in_child(self) -> None:
        """Continue with other locks; connections that could not be closed before are kept, unused and unclosed."""
        self._abandoned += [pool for pool in (self._writers, self._readers) if pool not in self._paused]
        self._start()

    def _open(self) -> Connection:
        if self.identity() is None:
            return Connection.empty(self.prefix)
        try:
            connection = self.patience(Connection.open, self.path, prefix=self.prefix)
            try:
                if self.patience(schema.is_current, connection.sql):
                    return connection
            except BaseException:
                connection.close()
                raise
            connection.close()
        except sqlite3.Error as error:
            raise translate(error, self.path) from error
        return Connection.empty(self.prefix)

    def _apply_schema(self) -> None:
        _make(self._place)
        connection = Connection.open(self.path, create=True, prefix=self.prefix)
        try:
            schema.apply(connection.sql)
        finally:
            connection.close()


def _make(path: str) -> None:
    """Make an empty file that its user alone can read and write, or less by the umask. One that exists stays as it is.

    SQLite would let all users read it, by the usual umask. The logs get the rights of the file. Nothing is opened, as
    to close it would end the locks that other threads may have on the file by then. Where the system cannot make a
    file so, such as macOS, SQLite makes it.
    """
    with suppress(OSError):  # SQLite says what is wrong
        os.mknod(os.path.realpath(path), 0o600)


def _query(connection: Connection, query: Callable[[sqlite3.Connection], T]) -> T:
    connection.sql.execute("BEGIN")
    try:
        return query(connection.sql)
    finally:
        connection.roll_back()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # a log ends with the last connection
        return 0


class Patience:
    """Repeats an attempt for up to ``seconds`` while the database is locked by others.

    Pauses shrink with the time waited. A new attempt leaves the lock to those that wait already. This makes turns fair
    and lets the holder do several transactions in a row; SQLite's own waiting does the opposite.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __call__(self, attempt: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what the first attempt on a free database gives, or raise the last one's error."""
        try:
            return attempt(*args, **kwargs)
        except sqlite3.Error as error:
            return self.repeat(error, attempt, *args, **kwargs)

    def repeat(self, error: sqlite3.Error, attempt: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Continue after a first attempt, whose error is raised again unless the database was locked."""
        until = time.monotonic() + self._seconds
        repeats = 1
        while is_busy(error):
            try:
                return attempt(*args, **kwargs)
            except sqlite3.Error as again:
                if time.monotonic() >= until:
                    raise
                error = again
            time.sleep(random.uniform(0.5, 1.5) * max(_SHORTEST, _LONGEST / repeats))
            repeats += 1
        raise error


def check_path(path: str) -> Path:
    """Return the path of a file, absolute. Raises InvalidSetting."""
    if not Path(path).name or "\0" in path or path.startswith(":memory:"):
        raise InvalidSetting(f"SQLite path {path!r} cannot be used: give the path of a file")
    return Path(path).absolute()


def check_synchronous(value: str) -> str:
    """Return what commits wait for, when it is known."""
    if value not in ("full", "normal"):
        raise InvalidSetting(f"synchronous {value!r} is unknown: use 'full' or 'normal'")
    return value


def check_timeout(seconds: float) -> float:
    """Return the seconds, when that is a time to wait for."""
    if not 0 <= seconds < threading.TIMEOUT_MAX:
        raise InvalidSetting(f"busy_timeout {seconds!r} is out of range: give seconds from 0 up")
    return seconds
