"""What ends a client of a store after so many of its writes were carried out."""

from __future__ import annotations

import os
import signal
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shardq.storage.store import Store
from shardq.testing import ApplicationTransaction
from tests.forking import start, was_killed

__all__ = ["CassandraKiller", "Killer", "MongoKiller", "PostgresKiller", "SqliteKiller"]

READING = frozenset(
    {"find", "getMore", "aggregate", "count", "listCollections", "listIndexes", "serverStatus"}
)
WRITING = ("BEGIN IMMEDIATE", "INSERT", "UPDATE", "DELETE", "REPLACE", "WITH", "CREATE", "COMMIT")

Act = Callable[[Store], object]


class Killer(ABC):
    """Lets new clients act, and ends them. What they sent before is carried out; nothing comes after it."""

    harness: Any
    turn: int
    """Which third of the requests its clients die at; that of the next store is the next one."""

    def every_third(self, most: int) -> range:
        """Return the numbers of requests to die at, below ``most``. The three stores together take all of them."""
        return range(self.turn, most, 3)

    def every_ninth(self, most: int) -> range:
        """The same for what takes seconds each time. The three stores together take every third."""
        return range(3 * self.turn, most, 9)

    @abstractmethod
    def run(self, act: Act, requests: int) -> bool:
        """Let a new client act, and end it when it begins one request more than these; False: it was done before.

        Requests are those that write: to die before one that reads is to die before the next one that writes.
        """

    def begin(self, row: bytes) -> ApplicationTransaction:
        """Begin a transaction of the application that writes this row, in a client that may die."""
        transaction = self._begin()
        transaction.row = row
        return transaction

    def is_written(self, row: bytes) -> bool:
        """Whether the row is there."""
        transaction = self.harness.begin()
        transaction.roll_back()
        transaction.row = row
        try:
            return bool(transaction.written)
        finally:
            transaction.close()

    def _begin(self) -> Any:
        return self.harness.begin()

    def close(self) -> None:  # noqa: B027 -- most have something to give up
        """Give everything up."""


class SqliteKiller(Killer):
    """SIGKILL between two statements that write: a transaction is open then, or its locks are held."""

    turn = 0

    def __init__(self, folder: Path, *, of_application: bool = False) -> None:
        from tests.conformance.test_sqlite import SqliteHarness
        from tests.conformance.test_sqlite_of_applications import SharedHarness

        self.harness = SharedHarness(folder, "delete") if of_application else SqliteHarness(folder)

    def run(self, act: Act, requests: int) -> bool:
        return was_killed(start(lambda: self._act(act, requests)))

    def _act(self, act: Act, requests: int) -> None:
        begun = 0

        def count(statement: str) -> None:
            nonlocal begun
            begun += statement.lstrip().upper().startswith(WRITING)
            if begun > requests:
                os.kill(os.getpid(), signal.SIGKILL)

        connect = sqlite3.connect

        def watched(*args: Any, **options: Any) -> sqlite3.Connection:
            connection = connect(*args, **options)
            connection.set_trace_callback(count)
            return connection

        sqlite3.connect = watched  # type: ignore[assignment]  # of this child
        act(self.harness.open())


class ServerKiller(Killer):
    """SIGKILL while the answer to a request that writes is on its way back through a proxy."""

    _proxy: Any

    def run(self, act: Act, requests: int) -> bool:
        return not requests or self._proxy.kill_at(requests - 1, lambda: act(self._open()))

    @abstractmethod
    def _open(self) -> Store:
        """Open a store through the proxy."""

    def close(self) -> None:
        self._proxy.close()
        self.harness.close()


class PostgresKiller(ServerKiller):
    """Kills clients of PostgreSQL."""

    turn = 1

    def __init__(self, url: str) -> None:
        from shardq.storage.postgresql.url import parse
        from tests.conformance.test_postgresql import PostgresHarness
        from tests.postgresql.lossy_proxy import READING, PostgresProxy

        self.harness = PostgresHarness(url)
        server = self.harness.address.hosts[0]
        host, port = server.split(":")
        self._proxy = PostgresProxy(host, int(port), uncounted=READING)
        proxied = url.replace(server, f"127.0.0.1:{self._proxy.port}")
        options = f"schema={self.harness.schema}&prepare=false&sslmode=disable&gssencmode=disable"
        self._address, _ = parse(f"{proxied}?{options}")

    def _open(self) -> Store:
        from shardq.storage.postgresql.store import PostgresStore

        return PostgresStore(self._address, clock=self.harness.clock)

    def _begin(self) -> Any:
        from tests.conformance.test_postgresql import PostgresTransaction

        return PostgresTransaction(self._address.conninfo, self.harness.schema)


class MongoKiller(ServerKiller):
    """Kills clients of MongoDB."""

    turn = 1

    def __init__(self, url: str) -> None:
        from tests.conformance.test_mongodb import MongoHarness
        from tests.mongodb.lossy_proxy import LossyProxy

        self.harness = MongoHarness(url)
        self._url = url
        server = self.harness.address.hosts[0]
        host, port = server.split(":")
        self._proxy = LossyProxy(host, int(port), uncounted=READING)
        self._proxied = _direct(url.replace(server, f"127.0.0.1:{self._proxy.port}"))
        # A transaction of a client that is gone stands in the way of others until the server gives it up.
        self._lifetime = self._end_transactions_after(3)

    def _open(self) -> Store:
        from shardq.storage.mongodb.store import MongoStore
        from shardq.storage.mongodb.url import parse

        return MongoStore(parse(self._proxied))

    def _begin(self) -> Any:
        from pymongo import MongoClient

        from tests.conformance.test_mongodb import MongoTransaction

        return MongoTransaction(MongoClient(self._proxied)[self.harness.address.database])

    def close(self) -> None:
        self._end_transactions_after(self._lifetime)
        super().close()

    def _end_transactions_after(self, seconds: int) -> int:
        """Set it for the whole server, and return what held before: other tests share the server."""
        command = {"setParameter": 1, "transactionLifetimeLimitSeconds": seconds}
        before: int = self.harness.client.admin.command(command)["was"]
        return before


class Killed(BaseException):
    """The process has ended, as far as its client can tell."""


class CassandraKiller(Killer):
    """Stops a client for good before a request leaves it, and forgets all that it knew, but for its connections."""

    turn = 2

    def __init__(self, url: str) -> None:
        from cassandra.cluster import Session

        from tests.conformance.test_cassandra import CassandraHarness

        self.harness = CassandraHarness(url)
        self._connected = self.harness.open()
        self._class, self._execute = Session, Session.execute_async
        self._left: int | None = None
        Session.execute_async = self._watched()

    def run(self, act: Act, requests: int) -> bool:
        victim = self.harness.open()
        victim.session.connected = self._connected.session.connected
        self._connected.now()
        self._left = requests
        try:
            act(victim)
        except Killed:
            return True
        finally:
            self._left = None
        return False

    def close(self) -> None:
        self._class.execute_async = self._execute
        self._connected.close()
        self.harness.close()

    def _watched(self) -> Callable[..., Any]:
        execute = self._execute

        def watched(session: Any, query: Any, *args: Any, **options: Any) -> Any:
            if self._left is not None and not _only_reads(query):
                if self._left == 0:
                    raise Killed
                self._left -= 1
            return execute(session, query, *args, **options)

        return watched


def _only_reads(query: Any) -> bool:
    text = getattr(getattr(query, "prepared_statement", query), "query_string", "")
    return str(text).lstrip().upper().startswith("SELECT")


def _direct(url: str) -> str:
    """A client that is told of the members of a replica set would go to them, and not through the proxy."""
    base, _, options = url.partition("?")
    kept = [each for each in options.split("&") if each and not each.lower().startswith("replicaset=")]
    return f"{base}?{'&'.join([*kept, 'directConnection=true'])}"
