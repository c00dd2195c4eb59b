"""Requests within a transaction of the application, on its own psycopg connection, which may be an async one.

A request restores each setting that it changes, and makes no savepoint: more than 64 in one transaction make the whole
server slow. A request that is refused has changed nothing by then. A later failure or interrupt ends the transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, ParamSpec, TypeVar, TypeVarTuple, Unpack, cast

import psycopg
from psycopg.adapt import AdaptersMap
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row

from shardq.base.texts import kind_of, shown
from shardq.errors import (
    Closed,
    InvalidSetting,
    SchemaMismatch,
    ShardqError,
    StoreUnavailable,
    UnsupportedByStore,
)
from shardq.storage.abilities import OnLoop, TransactionEnded, driver_connection, this_thread
from shardq.storage.listening import LocalListener
from shardq.storage.postgresql import schema
from shardq.storage.postgresql.connections import READ_COMMITTED, Row, Sql
from shardq.storage.postgresql.faults import translate
from shardq.storage.postgresql.session import Session
from shardq.storage.postgresql.signals import Channel
from shardq.storage.requests import Capabilities
from shardq.storage.signals import Signals
from shardq.storage.wrapped_store import WrappedStore

__all__ = ["JoinedSession", "JoinedSignals", "JoinedStore", "LoopCursor"]

C = TypeVar("C", psycopg.Connection[Any], psycopg.AsyncConnection[Any])
P = ParamSpec("P")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_STARTED = "extract(epoch FROM pg_postmaster_start_time())::text"  # it differs between servers
_DATABASE = f"""
    SELECT current_database(), current_setting('transaction_isolation'), {_STARTED}, current_schemas(true)::text[]
"""
_PATH = "SELECT current_setting('search_path')"
_SET_PATH = "SELECT set_config('search_path', $1::text, true)"
_ABORT = "SELECT 'shardq: a part of a request is missing in this transaction'::int"  # an error of the server
_HAS_SCHEMA = "SELECT to_regclass($1) IS NOT NULL"

_REFUSED = {
    "claim": "receiving",
    "purge": "a purge",
    "drop_queue": "the end of a queue",
    "sweep": "a sweep",
    "forget": "a sweep",
}


class LoopCursor:
    """Runs each statement on the event loop of its connection, while the thread that asks for it waits.

    From the first statement of a request to its :meth:`end` it holds the lock of the connection. So a statement of the
    application, which may end the transaction, comes before or after all of the request. A request begins only within
    the transaction: behind its end the driver would begin another one. ``begins`` lets the first one begin it.
    """

    def __init__(self, connection: psycopg.AsyncConnection[Any], on_loop: OnLoop, *, begins: bool) -> None:
        self._connection, self._on_loop, self._begins = connection, on_loop, begins
        unlocked = cast("psycopg.AsyncConnection[Any]", _Unlocked(connection))
        self._cursor: psycopg.AsyncRawCursor[Row] = psycopg.AsyncRawCursor(unlocked, row_factory=tuple_row)
        self._rows: list[Row] = []
        self._holds_lock = False
        self.rowcount = -1

    @property
    def adapters(self) -> AdaptersMap:
        """How values are written and read."""
        return self._cursor.adapters

    def execute(
        self, query: Any, params: Any = None, *, prepare: bool | None = None, binary: bool | None = None
    ) -> LoopCursor:
        """Carry out a statement. The first one of a request raises Closed after the end of the transaction."""
        self._rows = self._on_loop.run(self._execute(query, params, prepare, binary))
        return self

    async def _execute(self, query: Any, params: Any, prepare: bool | None, binary: bool | None) -> list[Row]:
        if not self._holds_lock:
            await self._begin()
        await self._cursor.execute(query, params, prepare=prepare, binary=binary)
        self.rowcount = self._cursor.rowcount
        return await self._cursor.fetchall() if self._cursor.description is not None else []

    async def _begin(self) -> None:
        connection = self._connection
        await connection.lock.acquire()
        is_idle = connection.info.transaction_status == TransactionStatus.IDLE
        if self._on_loop.left or connection.closed or (is_idle and not self._begins):
            connection.lock.release()
            raise Closed(
                "the transaction of the application has ended: join another one with client.transaction()"
            )
        self._begins, self._holds_lock = False, True
        _check_mode(connection)

    def end(self) -> None:
        """Let the application use its connection again, after a request."""
        if self._holds_lock:
            self._holds_lock = False
            self._on_loop.call_soon(self._connection.lock.release)

    def close(self) -> None:
        """Close the connection."""
        self._on_loop.run(self._connection.close())

    def fetchall(self) -> list[Row]:
        """Return the rows that are left."""
        rows, self._rows = self._rows, []
        return rows

    def fetchone(self) -> Row | None:
        """Return the next row."""
        return self._rows.pop(0) if self._rows else None


class _Unlocked:
    """A connection for a cursor whose statements run while the lock of the connection is held already."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection
        self.lock = nullcontext()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


class JoinedSession(Session):
    """Runs functions in a transaction that is under way. It neither begins nor ends it."""

    is_own = False

    def __init__(self, outside: Session, connection: object) -> None:
        self.address, self.now = outside.address, outside.now
        self._driver: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]
        if isinstance(connection, OnLoop):
            self._driver = _driver_of(connection.connection, psycopg.AsyncConnection)
        else:
            self._driver = _driver_of(connection, psycopg.Connection)
        self._thread = this_thread()
        # Without autocommit the driver begins one with the first statement, as that of the application would be.
        begins = not (self._driver.closed or self._driver.autocommit)
        if self.has_ended and not begins:
            raise InvalidSetting(
                f"connection={shown(connection)} is in no transaction: begin one first, with `BEGIN` or "
                "`connection.transaction()`"
            )
        self._on_loop: LoopCursor | None = None
        if isinstance(connection, OnLoop) and isinstance(self._driver, psycopg.AsyncConnection):
            self._on_loop = LoopCursor(self._driver, connection, begins=begins)
        self._sql = Sql(
            self._driver,
            self.address.schema,
            self.now,
            outside,
            self._on_loop,
            prepares=self.address.prepares,
        )
        ((database, isolation, server, schemas),) = self._translated_here(lambda sql: sql.all(_DATABASE))
        if server != outside.server:  # as far as is known: it may have started again
            ((outside.server,),) = outside.read(lambda sql: sql.all(f"SELECT {_STARTED}"))
        if database != self.address.database or server != outside.server:
            where = "" if server == outside.server else " of another server"
            raise InvalidSetting(
                f"connection={shown(connection)} is to the database {database!r}{where}: connect to the database of "
                f"the queues, {str(self.address).rstrip(',')}"
            )
        if isolation != READ_COMMITTED:
            raise InvalidSetting(
                f"connection={shown(connection)} is in a transaction of isolation {isolation!r}: use READ COMMITTED, "
                "as messages of a group could change places"
            )
        if not self._translated_here(lambda sql: sql.all(_HAS_SCHEMA, sql.named("meta"))[0][0]):
            raise SchemaMismatch(
                f"{self.address} has no schema: create a queue before the transaction", missing=True
            )
        schema.check_version(self._translated_here(schema.version), self.address)
        first = next(each for each in schemas if not each.startswith("pg_temp"))  # which has no operators
        self._is_overridden = first != "pg_catalog"

    @property
    def has_ended(self) -> bool:
        """True when the application has ended the transaction, or its connection."""
        return self._driver.closed or self._driver.info.transaction_status not in (
            TransactionStatus.INTRANS,
            TransactionStatus.INERROR,
            TransactionStatus.ACTIVE,
        )

    def read(self, query: Callable[[Sql, Unpack[Ts]], T], *args: *Ts) -> T:
        """Return what ``query`` finds, changes of the transaction included."""
        return self._within(query, *args)

    def snapshot(self, query: Callable[[Sql, Unpack[Ts]], T], *args: *Ts) -> T:
        """Return what ``query`` finds, changes of the transaction included."""
        return self._within(query, *args)

    def statement(self, change: Callable[[Sql, Unpack[Ts], int], T], *args: *Ts) -> T:
        """Make a change that stands if the application commits."""
        return self._within(change, *args, self.now())

    def write(
        self,
        change: Callable[[Sql, Unpack[Ts], int], T],
        *args: *Ts,
        durable: bool = True,  # noqa: ARG002 - as durable as the application's commit
        briefly: bool = False,  # noqa: ARG002 - as the application has set it
    ) -> T:
        """Make a change that stands if the application commits."""
        return self._within(change, *args, self.now())

    def apply_schema(self) -> None:
        """Do nothing: the schema was there when the transaction was joined."""

    def close(self) -> None:
        """Do nothing: the connection is the application's."""

    def _within(self, do: Callable[[Sql, Unpack[Ts]], T], *args: *Ts) -> T:
        if this_thread() != self._thread:
            raise StoreUnavailable(
                "a transaction is used by the thread that has joined it, and by no forked child: send and settle there",
                retryable=False,
            )
        if self.has_ended:
            raise Closed(
                "the transaction of the application has ended: join another one with client.transaction()"
            )
        if self._is_overridden:
            return self._translated_here(self._on_own_path, do, *args)
        return self._translated_here(do, *args)

    def _on_own_path(self, sql: Sql, do: Callable[[Sql, Unpack[Ts]], T], *args: *Ts) -> T:
        """Run it where operators of other schemas do not go before those that are built in."""
        ((path,),) = sql.all(_PATH)
        try:
            sql.one(_SET_PATH, "pg_catalog")
            return do(sql, *args)
        finally:
            if self._driver.info.transaction_status == TransactionStatus.INTRANS:
                sql.one(_SET_PATH, path)

    def _translated_here(self, do: Callable[[Sql, Unpack[Ts]], T], *args: *Ts) -> T:
        _check_mode(self._driver)
        before = self._sql.changes
        try:
            return do(self._sql, *args)
        except psycopg.Error as error:
            self._abort_transaction()
            reason = translate(error, str(self.address))
            raise TransactionEnded(
                f"PostgreSQL has ended the application's transaction, roll it back: {reason}", retryable=False
            ) from error
        except BaseException as error:
            if self._sql.changes == before:
                raise
            self._abort_transaction()
            if not isinstance(error, ShardqError):
                raise
            raise TransactionEnded(
                f"a part of a request would be in the application's transaction, roll it back: {error}",
                retryable=False,
            ) from error
        finally:
            if self._on_loop is not None:
                self._on_loop.end()

    def _abort_transaction(self) -> None:
        """Have the server refuse to commit the transaction, a part of which may be missing."""
        try:
            if self._driver.info.transaction_status == TransactionStatus.INTRANS:
                self._sql.script(_ABORT)
        except psycopg.errors.InvalidTextRepresentation:
            pass
        except Closed:  # it has ended meanwhile
            pass
        except BaseException:
            self._driver.close() if self._on_loop is None else self._on_loop.close()
            raise


class JoinedSignals(Signals):
    """Those of a transaction of the application: the server tells who waits when it is committed."""

    def __init__(self, outside: Signals, channel: Channel, session: JoinedSession) -> None:
        self._outside, self._channel, self._session = outside, channel, session

    def announce(self, queue: str, *, elsewhere: bool = True) -> None:  # noqa: ARG002 - not known before the commit
        """Notify waiting clients after the commit."""
        self._channel.publish_within(self._session, queue)

    def listen(self, wake: Callable[[], None]) -> LocalListener:
        """Return what calls ``wake`` when one of its queues is announced."""
        return self._outside.listen(wake)

    def close(self) -> None:
        """Do nothing: the channel is that of the store."""


class JoinedStore(WrappedStore):
    """A store whose changes are part of a transaction.

    Requests that would keep others waiting until its end are refused.
    """

    @property
    def capabilities(self) -> Capabilities:
        """Those of the store within a transaction."""
        return self.inner.capabilities.within_transaction()

    def call(self, method: str, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Refuse what a transaction has no part in, and do the rest."""
        if (what := _REFUSED.get(method)) is not None:
            raise UnsupportedByStore(
                f"{what} cannot be part of a transaction of the application on PostgreSQL: do that outside of it"
            )
        return do(*args, **kwargs)


def _check_mode(driver: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    if driver.info.pipeline_status != PipelineStatus.OFF:
        raise InvalidSetting(
            f"connection={shown(driver)} is in pipeline mode, where a statement returns no rows: use shardq "
            "outside of the block of `connection.pipeline()`"
        )


def _driver_of(connection: object, kind: type[C]) -> C:
    found: C | None = driver_connection(connection, kind)
    if found is None:
        where = "a sync" if kind is psycopg.Connection else "an asyncio"
        raise InvalidSetting(
            f"connection={shown(connection)} is {kind_of(connection)}: {where} client takes the "
            f"psycopg.{kind.__name__} of the transaction, of psycopg 3 (in SQLAlchemy a URL that begins with postgresql+psycopg://)"
        )
    return found
