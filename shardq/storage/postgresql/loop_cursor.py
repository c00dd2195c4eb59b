"""A cursor of the application's AsyncConnection, which a thread uses."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.adapt import AdaptersMap
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from shardq.errors import Closed
from shardq.storage.abilities import OnLoop
from shardq.storage.postgresql.connections import Row

__all__ = ["LoopCursor"]


class LoopCursor:
    """Runs each statement on the event loop of its connection, while the thread that asks for it waits.

    A statement begins only within the transaction: nothing may slip behind its end, where the driver would begin
    another one for it. ``begins`` lets the first statement begin the transaction.
    """

    def __init__(self, connection: psycopg.AsyncConnection[Any], on_loop: OnLoop, *, begins: bool) -> None:
        self._connection, self._on_loop, self._begins = connection, on_loop, begins
        self._cursor: psycopg.AsyncRawCursor[Row] = psycopg.AsyncRawCursor(connection, row_factory=tuple_row)
        self._rows: list[Row] = []
        self.rowcount = -1
        self.aborts = False
        """True: a statement may also begin when the application leaves, which must not commit a part of a request."""

    @property
    def adapters(self) -> AdaptersMap:
        """How values are written and read."""
        return self._cursor.adapters

    def execute(
        self, query: Any, params: Any = None, *, prepare: bool | None = None, binary: bool | None = None
    ) -> LoopCursor:
        """Carry out a statement. Raises Closed after the end of the transaction."""
        self._rows = self._on_loop.run(self._execute(query, params, prepare, binary))
        return self

    async def _execute(self, query: Any, params: Any, prepare: bool | None, binary: bool | None) -> list[Row]:
        connection = self._connection
        while connection.lock.locked():  # by a statement of the application, which may end the transaction
            async with connection.lock:
                pass
        # From here to the begin of the statement nothing else runs on the loop, as the lock is free.
        is_idle = connection.info.transaction_status == TransactionStatus.IDLE
        is_left = self._on_loop.left and not self.aborts
        if is_left or connection.closed or (is_idle and not self._begins):
            raise Closed(
                "the transaction of the application has ended: join another one with client.transaction()"
            )
        self._begins = False
        await self._cursor.execute(query, params, prepare=prepare, binary=binary)
        self.rowcount = self._cursor.rowcount
        return await self._cursor.fetchall() if self._cursor.description is not None else []

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
