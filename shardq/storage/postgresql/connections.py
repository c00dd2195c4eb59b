"""Connections to the server, and statements on them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from typing import Any, Protocol, TypeAlias, TypeVar, TypeVarTuple, Unpack, cast

import msgspec
import psycopg
from psycopg.abc import Buffer, PQGen
from psycopg.adapt import AdaptersMap, Dumper, PyFormat
from psycopg.postgres import types as pg_types
from psycopg.pq import Format, TransactionStatus
from psycopg.rows import tuple_row
from psycopg.types.array import BaseListDumper, ListBinaryDumper
from psycopg.types.numeric import Int8BinaryDumper
from psycopg.types.string import ByteaBinaryLoader, BytesBinaryDumper, TextBinaryLoader

__all__ = ["READ_COMMITTED", "Address", "Connection", "Driver", "Id", "Row", "Sql", "connect", "quoted"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Row: TypeAlias = tuple[Any, ...]

_PREPARED = 300  # statements that a connection remembers: more than there are
_SYNCHRONOUS = "SyncRepWaitForLSN"  # the server's function that warns of a commit that waits for no standby
_CANCEL_SECONDS = 2.0  # for which a statement that is given up keeps its thread, so that the server ends it
# The plans of all statements go by the indexes that are meant for them. Without that the planner goes by the number of
# rows, which vacuum takes for next to none beside a long transaction: then any index seems as good, and a claim reads
# all dead entries of its shard. What is disabled but needed makes the costs so high that statements would be compiled.
# A statement is planned once: planning a claim takes longer than the claim.
# Warnings are needed, as one tells of a commit that waited for no standby; a role may want fewer messages, or far more.
# No operator of another schema is taken for a built-in one. Behind a pooler others use the same session of the server
# later: there nothing is set.
_SETTLE_IN = """
    SELECT current_setting('default_transaction_isolation'), (
        SELECT count(set_config(name, value, false))
        FROM (
            VALUES ('enable_seqscan', 'off'), ('enable_bitmapscan', 'off'), ('enable_sort', 'off'), ('jit', 'off'),
                ('plan_cache_mode', 'force_generic_plan'),
                ('client_min_messages', 'warning'), ('search_path', 'pg_catalog')
        ) AS own (name, value)
        WHERE pg_backend_pid() OPERATOR(pg_catalog.=) $1
    )
"""
READ_COMMITTED = "read committed"
"""The isolation in which each statement sees what was committed before it began."""


class Address(msgspec.Struct, frozen=True):
    """The parts of a URL. Its text names hosts, database and schema, never the login."""

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


class _ListDumper(ListBinaryDumper):
    """Dumps lists of nothing but None as arrays of text, too: in text, ``array_nulls = off`` makes words of them."""

    def upgrade(self, obj: list[Any], format: PyFormat) -> BaseListDumper:  # noqa: A002 -- the name of the driver
        dumper = super().upgrade(obj, format)
        if dumper.format != Format.BINARY:
            dumper = type(self)(self.cls, self._tx)
            dumper.oid = pg_types["text"].array_oid
        return dumper


class _TextLoader(TextBinaryLoader):
    """Loads text also where the encoding is SQL_ASCII, in which the driver makes no text of it."""

    def load(self, data: Buffer) -> str:
        text = super().load(data)
        return text if isinstance(text, str) else bytes(text).decode(errors="replace")


def quoted(name: str) -> str:
    """Return an identifier as statements have it."""
    return '"' + name.replace('"', '""') + '"'


# Functions, types and tables of the server. Quoted text and comments match first and stay unchanged. The server
# itself knows whose unnest() of several arrays is meant, and only without a schema.
_BUILT_IN = re.compile(
    r"""
    "[^"]*" | '[^']*' | --[^\n]*
    | (?<![\w.@]) ((?!(?:coalesce|extract|greatest|least)\(|unnest\([^)]*,) [a-z_0-9]+(?=\() | pg_(?!catalog\b)[a-z_]+)
    | (?<=::) (bytea|text|uuid)
    """,
    re.VERBOSE,
)


def _qualified(found: re.Match[str]) -> str:
    return f"pg_catalog.{found[0]}" if found.lastindex else found[0]


class _Texts(dict[str, str]):
    """Statements with the name of the schema, for which they have an ``@``, and with that of what is built in.

    In the search path of a role or of an application, another schema may have functions of the same names.
    """

    def __init__(self, schema: str) -> None:
        super().__init__()
        self._prefix = quoted(schema) + "."

    def __missing__(self, statement: str) -> str:
        self[statement] = text = _BUILT_IN.sub(_qualified, statement).replace("@", self._prefix)
        return text


class Cursor(Protocol):
    """A cursor of the driver, as far as statements use it."""

    @property
    def rowcount(self) -> int:
        """How many rows the last statement was about."""
        ...

    @property
    def adapters(self) -> AdaptersMap:
        """How values are written and read."""
        ...

    def execute(
        self, query: Any, params: Any = None, *, prepare: bool | None = None, binary: bool | None = None
    ) -> object:
        """Carry out a statement."""
        ...

    def fetchall(self) -> list[Row]:
        """Return the rows that are left."""
        ...

    def fetchone(self) -> Row | None:
        """Return the next row."""
        ...


class SeparateTransactions(Protocol):
    """Makes changes in separate transactions."""

    def write(self, change: Callable[[Sql, Unpack[Ts], int], T], *args: *Ts, durable: bool = True) -> T:
        """Run ``change`` in a transaction and commit it."""
        ...


class Sql:
    """Statements on one connection. Numbers are given as ``bigint``, bytes as ``bytea``, an :class:`Id` as ``uuid``.

    In a transaction of the application there is an ``outside``, for what would keep others waiting until its end.
    """

    changes = 0
    """How many statements were begun that may have changed something."""

    def __init__(
        self,
        connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any],
        schema: str,
        now: Callable[[], int],
        outside: SeparateTransactions | None = None,
        cursor: Cursor | None = None,
        *,
        prepares: bool = True,
    ) -> None:
        self.connection, self.outside = connection, outside
        self.now = now
        """The moment, for what is written after a wait for locks."""
        self._schema = schema
        self.salt = blake2b(schema.encode(), digest_size=16).digest()
        """The part of a lock's number that distinguishes this schema from others in the database."""
        self._cursor: Cursor = cursor or psycopg.RawCursor(
            cast("psycopg.Connection[Any]", connection), row_factory=tuple_row
        )
        _adapt(self._cursor.adapters)
        if connection.info.encoding == "ascii":
            for name in ("text", "name"):
                self._cursor.adapters.register_loader(name, _TextLoader)
        self._texts = _Texts(schema)
        self._prepare = None if prepares else False  # None: as the connection does

    def all(self, statement: str, *values: object) -> list[Row]:
        """Return the rows of a statement."""
        self._cursor.execute(self._texts[statement], values, prepare=self._prepare, binary=True)
        return self._cursor.fetchall()

    def one(self, statement: str, *values: object) -> Row | None:
        """Return the first row of a statement, or None."""
        self._cursor.execute(self._texts[statement], values, prepare=self._prepare, binary=True)
        return self._cursor.fetchone()

    def run(self, statement: str, *values: object) -> int:
        """Make a change; returns how many rows it was about."""
        self.changes += 1
        self._cursor.execute(self._texts[statement], values, prepare=self._prepare, binary=True)
        return self._cursor.rowcount

    def changed(self, statement: str, *values: object) -> list[Row]:
        """Make a change, and return the rows that its statement answers."""
        self.changes += 1
        return self.all(statement, *values)

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
    adapters.register_dumper(list, _ListDumper)
    adapters.register_loader("uuid", ByteaBinaryLoader)


class _Notices:
    """The notices of the server.

    Nothing that a connection holds may lead back to it. Otherwise a connection that an interrupt has dropped is not
    closed at once, and its transaction keeps its locks. So the handler of notices is another object.
    """

    unconfirmed = ""
    """The notice that it committed without waiting for a standby."""

    def __call__(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.source_function == _SYNCHRONOUS:
            self.unconfirmed = str(notice.message_primary)


class Connection:
    """A connection of the pool. One that nobody holds any longer is closed."""

    target = None
    """All lead to the server of the address."""

    def __init__(self, address: Address, now: Callable[[], int]) -> None:
        """Connect. Raises the driver's errors."""
        self.driver = connect(address)
        self.driver.prepared_max = _PREPARED
        self.notices = _Notices()
        self.driver.add_notice_handler(self.notices)
        self.sql = Sql(self.driver, address.schema, now)
        try:
            ((isolation, _),) = self.sql.all(_SETTLE_IN, self.driver.info.backend_pid)
        except BaseException:
            self.close()
            raise
        self.is_read_committed = isolation == READ_COMMITTED
        """True unless the role has another isolation where no transaction was begun."""

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
        """Give up the connection, and what is not committed. A statement that is under way is cancelled."""
        try:
            with suppress(psycopg.Error):
                if self.driver.info.transaction_status == TransactionStatus.ACTIVE:
                    self.driver.cancel_safe(timeout=_CANCEL_SECONDS)
        finally:  # interrupted while it cancels, which takes long: else its transaction would keep its locks
            with suppress(psycopg.Error):
                self.driver.close()


def connect(address: Address) -> Driver:
    """Return a connection of the driver. Raises its errors."""
    driver = Driver.connect(
        address.conninfo, autocommit=True, prepare_threshold=0 if address.prepares else None
    )
    driver.patience = address.patience
    return driver
