"""Requests within a transaction of the application, on its own connection to the file."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar, TypeVarTuple, Unpack, cast

from shardq.base.texts import kind_of, shown
from shardq.base.waits import BackgroundThread, Flag
from shardq.errors import (
    Closed,
    InvalidSetting,
    SchemaMismatch,
    ShardqError,
    StoreUnavailable,
    UnsupportedByStore,
)
from shardq.storage.abilities import OnLoop, TransactionEnded, driver_connection, this_thread
from shardq.storage.per_process import OwnLock
from shardq.storage.sqlite import schema
from shardq.storage.sqlite.connections import file_identity
from shardq.storage.sqlite.faults import translate
from shardq.storage.sqlite.log import notify_processes
from shardq.storage.sqlite.session import Session
from shardq.storage.sqlite.signals import Signals
from shardq.storage.sqlite.tables import ApplicationConnection

__all__ = ["Commits", "JoinedSession", "JoinedSignals"]

_LOST = "what was committed may be lost, and the file damaged, when the process or the power fails"
_WEAKER = {
    "journal_mode": {"off": _LOST, "memory": _LOST},
    "synchronous": {"0": _LOST},
    "locking_mode": {"exclusive": "it keeps all others from the file, consumers too"},
}
"""Settings of the application's connection by which its commits would break a promise of the queues."""

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# Seconds between checks whether the application has committed: a share of the time since it is expected.
_FIRST_PAUSE, _LONGEST_PAUSE, _SHARE = 0.001, 0.5, 0.05
_LONGEST = 30.0  # seconds for which that is checked
_LEGACY = -1  # of sqlite3: transactions begin and end as `isolation_level` says


class JoinedSession(Session):
    """Runs functions in a transaction that is under way. It neither begins nor ends it, and waits for no lock.

    Each change is a savepoint, so one that raises leaves nothing in the transaction.
    """

    def __init__(self, connection: object, path: Path, now: Callable[[], int], prefix: str) -> None:
        if isinstance(connection, OnLoop):
            raise UnsupportedByStore(
                f"connection={shown(connection)}: a sqlite3.Connection belongs to one thread, and takes no part in "
                "transactions of an asyncio client: use the sync client in that thread"
            )
        driver = driver_connection(connection, sqlite3.Connection)
        if driver is None:
            raise InvalidSetting(
                f"connection={shown(connection)} is {kind_of(connection)}: "
                "give the sqlite3.Connection of the transaction, or that of SQLAlchemy or Django above it"
            )
        self.path, self._place, self.now = path, str(path), now
        self._sql, self._thread = driver, this_thread()
        self._tables = cast("sqlite3.Connection", ApplicationConnection(driver, prefix)) if prefix else driver
        is_begun = self._is_under_way()
        if not is_begun:
            self._check_begins()
        with self._plain():
            self._check_file()
        if not is_begun:
            self._begin()

    def read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Return the result of ``query``, changes of the transaction included."""
        self._check_open()
        with self._plain():
            return query(self._tables)

    def write(
        self,
        change: Callable[[sqlite3.Connection, Unpack[Ts], int], T],
        *args: *Ts,
        durable: bool = True,  # noqa: ARG002 - as durable as the application's commit
        committed: Callable[[], None] | None = None,
    ) -> T:
        """Make a change that stands if the application commits."""
        self._check_open()
        with self._plain():
            result = self._save(change, *args)
        if committed is not None:
            committed()
        return result

    def ping(self) -> None:
        """Read from the file."""
        self.read(lambda sql: sql.execute("PRAGMA schema_version").fetchone())

    def apply_schema(self) -> None:
        """Do nothing: the schema was there when the transaction was joined."""

    def close(self) -> None:
        """Do nothing: the connection is the application's."""

    def _save(self, change: Callable[[sqlite3.Connection, Unpack[Ts], int], T], *args: *Ts) -> T:
        self._sql.execute("SAVEPOINT shardq")
        try:
            result = change(self._tables, *args, self.now())
        except BaseException:
            if self._sql.in_transaction:  # else SQLite has rolled all of it back
                self._sql.execute("ROLLBACK TO shardq")
                self._sql.execute("RELEASE shardq")
            raise
        self._sql.execute("RELEASE shardq")
        return result

    @contextmanager
    def _plain(self) -> Iterator[None]:
        """Have rows and texts as SQLite gives them, and errors as shardq's."""
        rows, texts = self._sql.row_factory, self._sql.text_factory
        self._sql.row_factory, self._sql.text_factory = None, str
        try:
            yield
        except sqlite3.Error as error:
            reason = translate(error, self.path)
            if self._sql.in_transaction:
                raise reason from error
            # As when the disk is full, or the application has interrupted the connection.
            raise TransactionEnded(
                f"SQLite has rolled back all of the application's transaction: {reason}", retryable=False
            ) from error
        finally:
            self._sql.row_factory, self._sql.text_factory = rows, texts

    def _check_begins(self) -> None:
        """Raise InvalidSetting where the driver would not begin a transaction itself before a change."""
        control = getattr(self._sql, "autocommit", _LEGACY)  # which Python has since 3.12
        if self._sql.isolation_level is None or control != _LEGACY:
            raise InvalidSetting(
                f"connection={self._sql!r} is in no transaction: begin one first, "
                'with `connection.execute("BEGIN IMMEDIATE")`'
            )

    def _begin(self) -> None:
        """Begin one as the driver would with the first change of the application, but with the lock at once."""
        try:
            self._sql.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise translate(error, self.path) from error

    def _check_file(self) -> None:
        files = {name: file for _, name, file in self._sql.execute("PRAGMA database_list")}
        main = files.get("main")
        if not main or file_identity(main) != self.identity():
            raise InvalidSetting(
                f"connection={self._sql!r} is to {main or 'a database in memory'!r}, not to {str(self.path)!r}: "
                "connect to the file of the queues, and keep the tables of the application there, or ATTACH their file"
            )
        if not schema.is_current(self._tables):
            raise SchemaMismatch(
                f"SQLite file {self.path} has no schema: create a queue before the transaction"
            )

        for pragma, wrong in _WEAKER.items():
            value = str(self._sql.execute(f"PRAGMA {pragma}").fetchone()[0]).lower()
            if value in wrong:
                raise InvalidSetting(
                    f"connection={self._sql!r} has {pragma} = {value}: {wrong[value]}; set another one before the "
                    "transaction"
                )

    def _check_open(self) -> None:
        if this_thread() != self._thread:
            raise StoreUnavailable(
                "a transaction is used by the thread that has joined it, and by no forked child: send and settle there",
                retryable=False,
            )
        if not self._is_under_way():
            raise self._ended()

    def _is_under_way(self) -> bool:
        try:
            # The number of changes cannot be read of a connection that is closed.
            return self._sql.in_transaction and self._sql.total_changes >= 0
        except sqlite3.ProgrammingError as error:
            raise self._ended() from error

    def _ended(self) -> ShardqError:
        return Closed(
            "the transaction of the application has ended: join another one with client.transaction()"
        )


class Commits:
    """Notifies waiting clients of the commits of the application, which it makes on its own.

    A transaction that has changed something holds the file's lock. So its commit is the next change of the ``state``,
    which any news changes. A thread checks for that for 30 s: after 1 ms, then after a twentieth of the time since it
    was expected, up to half a second. Waiting clients also check every second.
    """

    def __init__(self, state: Callable[[], object], path: Path, ending: str) -> None:
        self.state, self._place, self._ending = state, str(path), ending
        self._lock = OwnLock()
        self._thread = BackgroundThread("shardq-commit")
        self._seen: object = None
        self._since = self._until = 0.0
        self.woken = Flag()

    def expect(self) -> None:
        """Look for the commit of the transaction that holds the lock now."""
        new = None
        with self._lock.plain, suppress(ShardqError):
            before = self.state()
            is_awaited = not self._thread.has_ended
            if is_awaited and before != self._seen:
                notify_processes(self._place, self._ending)  # of the commit that was expected until now
            self._seen, self._since = before, time.monotonic()
            self._until = self._since + _LONGEST
            if is_awaited:
                self.woken.set()
            else:
                self.woken = Flag()
                new = self._thread.prepare(self._poll)
        if new is not None:
            self._thread.begin(new)

    def close(self) -> None:
        """Look no longer."""
        with self._lock.plain:
            self._until = 0.0
            if not self._thread.has_ended:
                self.woken.set()

    def _poll(self) -> None:
        woken = self.woken
        while not self._has_ended():
            pause = (time.monotonic() - self._since) * _SHARE
            woken.wait(min(max(pause, _FIRST_PAUSE), _LONGEST_PAUSE))
            woken.clear()
        notify_processes(self._place, self._ending)

    def _has_ended(self) -> bool:
        with self._lock.plain:
            has_ended = time.monotonic() >= self._until
            with suppress(ShardqError):  # a disk that is unreachable may come back
                has_ended = has_ended or self.state() != self._seen
            if has_ended:
                self._thread.forget()
            return has_ended


class JoinedSignals(Signals):
    """The signals of a transaction of the application: waiting clients are notified when it is committed."""

    def __init__(
        self, numbers: Callable[[Sequence[str]], Mapping[str, int]], path: Path, commits: Commits
    ) -> None:
        super().__init__(numbers, path)
        self._commits, self._is_expected = commits, False

    def announce(self) -> None:
        """Notify waiting clients after the commit."""
        if not self._is_expected:
            self._commits.expect()
            self._is_expected = True
