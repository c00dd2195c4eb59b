"""The pool from which threads borrow connections.

A thread that finds none idle makes a connection, so that it gets the error if that fails.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple, Unpack

from shardq.base.waits import ChangeNotifier
from shardq.errors import StoreUnavailable
from shardq.storage.postgresql.connections import Address, Connection

__all__ = ["Pool"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class _Loan:
    """The connections that one thread has of the pool, so that an interrupt at any moment leaves them known."""

    epoch = -1
    connection: Connection | None = None


class Pool:
    """Lends up to ``limit`` connections at a time, the one returned last first."""

    def __init__(self, address: Address, now: Callable[[], int], *, limit: int, patience: float) -> None:
        self._address, self._now, self._limit, self._patience = address, now, limit, patience
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
                loan.connection = Connection(self._address, self._now)
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
