"""Connections that wait to be used."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from shardq.errors import StoreUnavailable
from shardq.storage.sqlite.connection import Connection, FileIdentity

__all__ = ["Pool"]


class Pool:
    """Lends up to ``limit`` connections at a time, the one returned last first: its cache is the warmest."""

    def __init__(
        self,
        open_connection: Callable[[], Connection],
        identity: Callable[[], FileIdentity | None],
        *,
        limit: int,
        path: Path,
        patience: float,
    ) -> None:
        self._open = open_connection
        self._identity = identity
        self._limit = limit
        self._path = path
        self._patience = patience
        self._changed = threading.Condition(threading.Lock())
        self._idle: list[Connection] = []
        self._lent = 0
        self._epoch = 0
        self._pausing = False

    @contextmanager
    def lend(self) -> Iterator[Connection]:
        """Lend a connection to this thread alone; raises StoreUnavailable when none comes back in time."""
        epoch = self._take_turn()
        connection: Connection | None = None
        try:
            connection = self._choose()
            yield connection
        except sqlite3.Error:
            # After a failed commit or a disk fault its state is in doubt; another one costs a millisecond.
            epoch = -1
            raise
        finally:
            self._give_back(connection, epoch)

    def clear(self) -> None:
        """Close the connections that are idle now, and those that are lent when they come back."""
        with self._changed:
            self._epoch += 1
            self._close_idle()

    def pause(self) -> bool:
        """Close all connections and lend none until :meth:`resume`; False when some stay lent."""
        if not self._changed.acquire(timeout=self._patience):
            return False
        self._pausing = True
        stopped = self._changed.wait_for(lambda: self._lent == 0, self._patience)
        if stopped:
            self._close_idle()
        else:
            self.resume()
        return stopped

    def resume(self) -> None:
        """Lend again after a successful :meth:`pause`."""
        self._pausing = False
        self._changed.notify_all()
        self._changed.release()

    def _take_turn(self) -> int:
        with self._changed:
            if not self._changed.wait_for(self._free, self._patience):
                raise StoreUnavailable(
                    f"SQLite file {self._path}: other threads kept it busy for {self._patience:g} s; use fewer"
                )
            self._lent += 1
            return self._epoch

    def _free(self) -> bool:
        return self._lent < self._limit and not self._pausing

    def _choose(self) -> Connection:
        identity = self._identity()
        while True:
            with self._changed:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                return self._open()
            if connection.identity == identity:
                return connection
            connection.close()

    def _give_back(self, connection: Connection | None, epoch: int) -> None:
        with self._changed:
            self._lent -= 1
            if connection is not None and connection.reusable and epoch == self._epoch:
                self._idle.append(connection)
                connection = None
            self._changed.notify_all()
        if connection is not None:
            connection.close()

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()
