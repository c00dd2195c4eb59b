"""Requests to the database: in transactions, with errors translated to shardq's, on connections of a pool."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar, TypeVarTuple, Unpack

import psycopg

from shardq.storage.clocks import uptime
from shardq.storage.per_process import PerProcess
from shardq.storage.pooling import Pool
from shardq.storage.postgresql import schema
from shardq.storage.postgresql.connections import Address, Connection, Sql
from shardq.storage.postgresql.faults import is_disturbed, is_elsewhere, translate, unconfirmed
from shardq.storage.postgresql.locks import BRIEF, LONG

__all__ = ["POOL_SIZE", "Session", "clock_leads"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

POOL_SIZE = 20
_FREE_SECONDS = 10.0  # for which a request waits for a connection of the pool
_PAUSES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8)  # seconds between attempts that others disturb

_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '{}'"
_NOT_DURABLE = "; SET LOCAL synchronous_commit = off"  # what it reports is written in order
_BEGIN_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_PING = "SELECT 1"
_TIME = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000.0)::bigint"

_SAMPLES = 8
_NEAR = 300  # microseconds; a single answer may be late by more


class Session:
    """The store's connections. Connects when it is first used, again after a fork, and again after a close."""

    is_own = True
    """False: it is part of a transaction of the application."""

    server = ""
    """When the server has started, as far as that was asked for."""

    def __init__(
        self,
        address: Address,
        now: Callable[[], int],
        pool_size: int = POOL_SIZE,
        *,
        carried_on: Callable[[], int] | None = None,
    ) -> None:
        self.address, self.now = address, now
        # A transaction uses the last measurement: behind a pooler there may be no other connection until it ends.
        self._carried_on = carried_on = carried_on or now
        self._pool = PerProcess(
            lambda: Pool(
                partial(Connection, address, carried_on),
                limit=pool_size,
                patience=_FREE_SECONDS,
                shortage=f"{address} other threads had all {pool_size} connections for {_FREE_SECONDS:g} s: use fewer, "
                "or raise pool_size in the URL",
            )
        )

    def read(self, query: Callable[[Sql, Unpack[Ts]], T], *args: *Ts) -> T:
        """Return what ``query`` finds. Each of its statements sees what is committed when it begins."""
        return self._use(self._query, query, args)

    def snapshot(self, query: Callable[[Sql, Unpack[Ts]], T], *args: *Ts) -> T:
        """Return what ``query`` finds in one state of the database."""
        return self._use(self._query_at_once, query, args)

    def statement(self, change: Callable[[Sql, Unpack[Ts], int], T], *args: *Ts) -> T:
        """Make a change of one statement, which commits automatically. It is given the arguments and the moment."""
        return self._use(self._state, change, args)

    def write(
        self,
        change: Callable[[Sql, Unpack[Ts], int], T],
        *args: *Ts,
        durable: bool = True,
        briefly: bool = False,
    ) -> T:
        """Run ``change`` in a transaction and commit it, or roll it back when it raises.

        It is given the arguments and the moment when it begins; and is called again when another transaction got ahead.
        Without ``durable`` a power failure may undo it, though never before a later durable change. It waits five
        seconds for a lock; half a second if other callers wait for it to end, ``briefly``.
        """
        begin = _BEGIN.format(BRIEF if briefly else LONG)
        return self._use(self._transact, change, args, begin if durable else begin + _NOT_DURABLE)

    def ping(self) -> None:
        """Ask the server for an answer."""
        self.read(lambda sql: sql.one(_PING))

    def apply_schema(self) -> None:
        """Bring the schema up to date."""
        self._use(self._apply)

    def close(self) -> None:
        """Give up the connections of this process."""
        if (pool := self._pool.take()) is not None:
            pool.clear()

    def _use(self, work: Callable[[Connection, Unpack[Ts]], T], *args: *Ts) -> T:
        self.now()  # which may need another connection
        for pause in (*_PAUSES, 0.0):
            pool = self._pool.get()
            try:
                return pool.use(work, *args)
            except _Disturbed as error:
                if not pause:
                    raise translate(error.error, str(self.address)) from error.error
                time.sleep(random.uniform(0, pause))
            except psycopg.Error as error:  # while connecting
                raise translate(error, str(self.address)) from error
        raise AssertionError("the last attempt has raised")

    def _query(self, connection: Connection, query: Callable[[Sql, Unpack[Ts]], T], args: tuple[*Ts]) -> T:
        try:
            return query(connection.sql, *args)
        except psycopg.Error as error:
            raise self._failed(error) from error

    def _query_at_once(
        self, connection: Connection, query: Callable[[Sql, Unpack[Ts]], T], args: tuple[*Ts]
    ) -> T:
        try:
            connection.sql.script(_BEGIN_SNAPSHOT)
            return query(connection.sql, *args)
        except psycopg.Error as error:
            raise self._failed(error) from error
        finally:
            connection.roll_back()

    def _state(
        self, connection: Connection, change: Callable[[Sql, Unpack[Ts], int], T], args: tuple[*Ts]
    ) -> T:
        if not connection.is_read_committed:
            return self._transact(connection, change, args, _BEGIN.format(LONG))
        connection.notices.unconfirmed = ""
        try:
            result = change(connection.sql, *args, self._carried_on())
        except psycopg.Error as error:
            raise self._failed(error, writing=True) from error
        self._check_confirmed(connection)
        return result

    def _transact(
        self,
        connection: Connection,
        change: Callable[[Sql, Unpack[Ts], int], T],
        args: tuple[*Ts],
        begin: str,
    ) -> T:
        committing = False
        connection.notices.unconfirmed = ""
        try:
            connection.sql.script(begin)
            result = change(connection.sql, *args, self._carried_on())
            committing = True
            connection.sql.script("COMMIT")
        except psycopg.Error as error:
            connection.roll_back()
            raise self._failed(error, writing=committing) from error
        except BaseException:
            connection.roll_back()
            raise
        self._check_confirmed(connection)
        return result

    def _apply(self, connection: Connection) -> None:
        try:
            schema.apply(connection.sql, self.address)
        except psycopg.Error as error:
            raise self._failed(error, writing=True) from error
        finally:
            connection.roll_back()

    def _failed(self, error: psycopg.Error, *, writing: bool = False) -> Exception:
        if is_disturbed(error):
            return _Disturbed(error)
        if is_elsewhere(error) and (pool := self._pool.known) is not None:
            pool.clear()  # every connection leads there
        return translate(error, str(self.address), writing=writing)

    def _check_confirmed(self, connection: Connection) -> None:
        if connection.notices.unconfirmed:
            raise unconfirmed(connection.notices.unconfirmed, str(self.address))


class _Disturbed(Exception):
    """Another transaction got ahead of this one."""

    def __init__(self, error: psycopg.Error) -> None:
        super().__init__(str(error))
        self.error = error


def clock_leads(session: Session, known: int | None) -> tuple[int]:
    """Ask by how many microseconds the server's clock is ahead of this machine's uptime.

    Each answer bounds the difference of the clocks from below, so nothing is due here before it is there. The highest
    bound of eight counts, or of fewer if it comes near to what is ``known``.
    """
    best = session.read(_sample)
    for _ in range(_SAMPLES - 1):
        if known is not None and abs(best - known) < _NEAR:
            break
        best = max(best, session.read(_sample))
    return (best,)


def _sample(sql: Sql) -> int:
    ((moment,),) = sql.all(_TIME)
    return int(moment) - uptime()
