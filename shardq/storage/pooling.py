"""A pool of connections, for the stores whose drivers have none that an interrupt leaves whole."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar, TypeVarTuple, Unpack

from shardq.base.waits import ChangeNotifier
from shardq.errors import StoreUnavailable

__all__ = ["Pool", "Pooled"]


class Pooled(Protocol):
    """A connection that a pool lends."""

    @property
    def target(self) -> object:
        """The file or server that it leads to. A connection with another target than the pool is replaced."""

    @property
    def is_usable(self) -> bool:
        """True when another thread may use it after this one."""

    def close(self) -> None:
        """Give up the connection, and what is not committed."""


C = TypeVar("C", bound=Pooled)
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class _Loan:  # not generic: an alias with its type makes two more calls for each
    """The connections that one thread has of the pool, so that an interrupt at any moment leaves them known."""

    epoch = -1
    connection: Any = None


class Pool(Generic[C]):
    """Lends up to ``limit`` connections at a time, the one returned last first: its cache is the warmest.

    A thread that finds no connection idle makes one by ``connect``, so that it gets the error if that fails. ``target``
    returns what connections have to lead to. ``shortage`` is the text of the error when none is returned in time.
    """

    def __init__(
        self,
        connect: Callable[[], C],
        *,
        limit: int,
        patience: float,
        shortage: str,
        target: Callable[[], object] = lambda: None,
    ) -> None:
        self._connect, self._target = connect, target
        self._limit, self._patience, self._shortage = limit, patience, shortage
        self._lock = threading.RLock()  # a signal's handler may ask, too
        self._changes = ChangeNotifier(self._lock)
        self._idle: list[C] = []
        self._lent: dict[_Loan, None] = {}  # entered and left in one step each
        self._epoch = 0

    def use(self, work: Callable[[C, Unpack[Ts]], T], *args: *Ts) -> T:
        """Run work with a connection of this thread alone; raises StoreUnavailable when none is returned in time."""
        loan = _Loan()
        try:
            with self._lock:
                is_lent = len(self._lent) < self._limit
                if is_lent:  # as :meth:`_lend` does, without a call
                    loan.epoch, self._lent[loan] = self._epoch, None
                    loan.connection = self._idle.pop() if self._idle else None
            if not is_lent:
                self._wait_for(loan)
            connection = loan.connection
            if connection is None or connection.target != self._target():
                connection = self._replace(loan)
            result = work(connection, *args)
            self._return(loan)
        except BaseException:
            try:
                self._return(loan)
            except BaseException:  # interrupted on the way out: once more
                self._return(loan)
                raise
            raise
        return result

    def clear(self) -> None:
        """Close the connections that are idle now, and those that are lent when they come back."""
        with self._lock:
            self._epoch += 1
            self._close_idle()

    def _wait_for(self, loan: _Loan) -> None:
        if not self._changes.wait_for(lambda: self._lend(loan), self._patience):
            raise StoreUnavailable(self._shortage)

    def _lend(self, loan: _Loan) -> bool:
        if len(self._lent) >= self._limit:
            return False
        loan.epoch, self._lent[loan] = self._epoch, None
        loan.connection = self._idle.pop() if self._idle else None
        return True

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _replace(self, loan: _Loan) -> Any:
        """Return an idle connection that leads to the target, or a new one."""
        while (connection := loan.connection) is not None and connection.target != self._target():
            with self._lock:
                loan.connection = self._idle.pop() if self._idle else None
            connection.close()  # no longer on loan: an interrupt here returns no closed connection
        if loan.connection is None:
            loan.connection = self._connect()
        return loan.connection

    def _return(self, loan: _Loan) -> None:
        """Let another thread lend, and keep the connection if it can be used. May be repeated after an interrupt."""
        with self._lock:
            connection = loan.connection
            if loan in self._lent:
                if connection is not None and loan.epoch == self._epoch and connection.is_usable:
                    loan.connection = None  # before, so that a repetition does not append it again
                    self._idle.append(connection)
                del self._lent[loan]
                if self._changes.waits:
                    self._changes.notify_all()
        if loan.connection is not None:
            loan.connection.close()
