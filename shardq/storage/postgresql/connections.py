"""Connections to the server: how one is set up, and the pool from which threads borrow them.

A thread that finds none idle connects by itself, so that it is told why that fails.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from typing import Any, Protocol, TypeAlias, TypeVar, TypeVarTuple, Unpack, cast

import msgspec
import psycopg
from psycopg.abc import PQGen
from psycopg.adapt import AdaptersMap, Dumper
from psycopg.postgres import types as pg_types
from psycopg.pq import Format, TransactionStatus
from psycopg.rows import tuple_row
from psycopg.types.array import ListBinaryDumper
from psycopg.types.numeric import Int8BinaryDumper
from psycopg.types.string import ByteaBinaryLoader, BytesBinaryDumper

from shardq.base.waits import ChangeNotifier
from shardq.errors import StoreUnavailable

__all__ = ["Address", "Connection", "Driver", "Id", "Pool", "Row", "Sql", "connect", "quoted"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Row: TypeAlias = tuple[Any, ...]

_PREPARED = 300  # statements that a connection remembers: more than there are
_SYNCHRONOUS = frozenset(("57014", "57P01"))  # of warnings: nobody waits for the standby any more


class Address(msgspec.Struct, frozen=True):
    """What a URL says. Its text names hosts, database and schema, never the login."""

    conninfo: str  # for the driver; it may hold a password
    hosts: tuple[str, ...]
    database: str
    schema: str
    prepares: bool = True  # False: behind a pooler that cannot keep prepared statements
    patience: float = 30.0  # seconds for an answer

    def __str__(self) -> str:
        return f"PostgreSQL at {','.join(self.hosts)}, database {self.database!r}, schema {self.schema!r},"

    def __repr__(self) -> str:
        return f"<{self}>"


class Id(bytes):
    """The 16 bytes of a bundle's id or of a token, which a statement gets as a ``uuid``."""


class Driver(psycopg.Connection[Row]):
    """A connection of the driver that does not wait for ever: it fails when the server says nothing for ``patience``.

    The driver has no such limit, and the system notices a server that is gone, but not one that stands still.
    """

    patience = 30.0

    def wait(self, gen: PQGen[T], *args: Any, **options: Any) -> T:
        """Wait for what the server says to a request."""
        return super().wait(_within(gen, self.patience), *args, **options)


def _within(gen: PQGen[T], seconds: float) -> PQGen[T]:
    until = time.monotonic() + seconds
    state = next(gen)
    while True:
        ready = yield state
        if not ready and time.monotonic() > until:
            raise psycopg.OperationalError(f"the server has not answered for {seconds:g} s")
        try:
            state = gen.send(ready)
        except StopIteration as end:
            result: T = end.value
            return result


class _IdDumper(Dumper):
    format = Format.BINARY
    oid = pg_types["uuid"].oid

    def dump(self, obj: Id) -> bytes:
        return obj


def quoted(name: str) -> str:
    """Return an identifier as it stands in a statement."""
    return '"' + name.replace('"', '""') + '"'


class _Texts(dict[str, str]):
    """Statements with the name of the schema, for which they have an ``@``."""

    def __init__(self, schema: str) -> None:
        super().__init__()
        self._prefix = quoted(schema) + "."

    def __missing__(self, statement: str) -> str:
        self[statement] = text = statement.replace("@", self._prefix)
        return text


class Cursor(Protocol):
    """What statements need of a cursor of the driver."""

    @property
    def rowcount(self) -> int:
        """How many rows the last statement was about."""
        ...

    @property
    def adapters(self) -> AdaptersMap:
        """How values are written and read."""
        ...

    def execute(
        self,
        query: Any,
        params: Any = None,
        *,
        prepare: bool | None = None,
        binary: bool | None = None,
    ) -> object:
        """Carry out a statement."""
        ...

    def fetchall(self) -> list[Row]:
        """Return the rows that are left."""
        ...

    def fetchone(self) -> Row | None:
        """Return the next row."""
        ...


class Outside(Protocol):
    """Makes changes in transactions of its own."""

    def write(self, change: Callable[[Sql, Unpack[Ts], int], T], *args: *Ts, durable: bool = True) -> T:
        """Run ``change`` in a transaction and commit it."""
        ...


class Sql:
    """Statements on one connection. Numbers are given as ``bigint``, bytes as ``bytea``, an :class:`Id` as ``uuid``.

    In a transaction of the application there is an ``outside``, for what would keep others waiting until its end.
    """

    def __init__(
        self,
        connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any],
        schema: str,
        outside: Outside | None = None,
        cursor: Cursor | None = None,
    ) -> None:
        self.connection, self.outside = connection, outside
        self._schema = schema
        self.salt = blake2b(schema.encode(), digest_size=16).digest()
        """What tells the locks of this schema from those of others in the database."""
        self._cursor: Cursor = cursor or psycopg.RawCursor(
            cast("psycopg.Connection[Any]", connection), row_factory=tuple_row
        )
        _adapt(self._cursor.adapters)
        self._texts = _Texts(schema)

    def all(self, statement: str, *values: object) -> list[Row]:
        """Return the rows of a statement."""
        self._cursor.execute(self._texts[statement], values, binary=True)
        return self._cursor.fetchall()

    def one(self, statement: str, *values: object) -> Row | None:
        """Return the first row of a statement, or None."""
        self._cursor.execute(self._texts[statement], values, binary=True)
        return self._cursor.fetchone()

    def run(self, statement: str, *values: object) -> int:
        """Carry out a statement; returns how many rows it was about."""
        self._cursor.execute(self._texts[statement], values, binary=True)
        return self._cursor.rowcount

    def named(self, table: str) -> str:
        """Return the name of a table as text."""
        return f"{quoted(self._schema)}.{quoted(table)}"

    def script(self, statements: str) -> None:
        """Carry out several statements without values, in one request."""
        self._cursor.execute(self._texts[statements], prepare=False)


def _adapt(adapters: AdaptersMap) -> None:
    adapters.register_dumper(int, Int8BinaryDumper)
    adapters.register_dumper(bytes, BytesBinaryDumper)
    adapters.register_dumper(Id, _IdDumper)
    adapters.register_dumper(list, ListBinaryDumper)
    adapters.register_loader("uuid", ByteaBinaryLoader)


class Connection:
    """A connection of the pool."""

    unconfirmed = ""
    """What the server said when it committed without waiting for a standby."""

    def __init__(self, connection: psycopg.Connection[Any], schema: str) -> None:
        self.driver = connection
        self.sql = Sql(connection, schema)
        connection.add_notice_handler(self._notice)

    @classmethod
    def open(cls, address: Address) -> Connection:
        """Connect. Raises the driver's errors."""
        driver = connect(address)
        driver.prepared_max = _PREPARED
        return cls(driver, address.schema)

    @property
    def is_usable(self) -> bool:
        """True while the server is there, as far as is known, and no transaction is under way."""
        return self.driver.info.transaction_status == TransactionStatus.IDLE

    def roll_back(self) -> None:
        """End the transaction, if there is one, without a change; or the connection, if that fails."""
        status = self.driver.info.transaction_status
        if status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
            with suppress(psycopg.Error):
                self.sql.script("ROLLBACK")

    def close(self) -> None:
        """Give up the connection, and what is not committed."""
        with suppress(psycopg.Error):
            self.driver.close()

    def _notice(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.sqlstate in _SYNCHRONOUS:
            self.unconfirmed = str(notice.message_primary)


def connect(address: Address) -> Driver:
    """Return a connection of the driver. Raises its errors."""
    driver = Driver.connect(
        address.conninfo, autocommit=True, prepare_threshold=0 if address.prepares else None
    )
    driver.patience = address.patience
    return driver


class _Loan:
    """What one thread has of the pool, so that an interrupt at any moment leaves it known."""

    epoch = -1
    connection: Connection | None = None


class Pool:
    """Lends up to ``limit`` connections at a time, the one returned last first."""

    def __init__(self, address: Address, *, limit: int, patience: float) -> None:
        self._address, self._limit, self._patience = address, limit, patience
        self._lock = threading.RLock()  # a signal's handler may ask, too
        self._changes = ChangeNotifier(self._lock)
        self._idle: list[Connection] = []
        self._lent: dict[_Loan, None] = {}  # entered and left in one step each
        self._epoch = 0

    def use(self, work: Callable[[Connection, Unpack[Ts]], T], *args: *Ts) -> T:
        """Run work with a connection of this thread alone; raises StoreUnavailable when none comes free in time."""
        loan = _Loan()
        try:
            with self._lock:
                is_lent = self._lend(loan)
            if not is_lent:
                self._wait_for(loan)
            if loan.connection is None:
                loan.connection = Connection.open(self._address)
            result = work(loan.connection, *args)
            self._give_back(loan)
        except BaseException:
            try:
                self._give_back(loan)
            except BaseException:  # interrupted on the way out: once more
                self._give_back(loan)
                raise
            raise
        return result

    def clear(self) -> None:
        """Close the connections that are idle now, and those that are lent when they come back."""
        with self._lock:
            self._epoch += 1
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _wait_for(self, loan: _Loan) -> None:
        if not self._changes.wait_for(lambda: self._lend(loan), self._patience):
            raise StoreUnavailable(
                f"{self._address} other threads had all {self._limit} connections for {self._patience:g} s: use fewer, "
                "or raise pool_size in the URL"
            )

    def _lend(self, loan: _Loan) -> bool:
        if len(self._lent) >= self._limit:
            return False
        loan.epoch, self._lent[loan] = self._epoch, None
        if self._idle:
            loan.connection = self._idle.pop()
        return True

    def _give_back(self, loan: _Loan) -> None:
        """Let another thread take the place, and keep the connection if it can be used. May be repeated."""
        with self._lock:
            connection = loan.connection
            if loan in self._lent:
                if connection is not None and loan.epoch == self._epoch and connection.is_usable:
                    loan.connection = None  # before, so that a repetition does not append it again
                    self._idle.append(connection)
                del self._lent[loan]
                if self._changes.turns:
                    self._changes.notify_all()
        if loan.connection is not None:
            loan.connection.close()
