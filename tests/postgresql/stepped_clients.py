"""Clients of one server whose statements are let through one at a time, in an order that chance decides.

Each client is a thread. It stops before each statement until it is its turn. A statement that waits for a lock of
another client goes on when that is released. Sessions have another isolation by default, so that shardq begins and
commits a transaction around statements that would commit automatically: others have their turns in between.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Any

import psycopg
import pytest

from shardq.storage.postgresql.connections import Sql

__all__ = ["STEPPED", "Scheduler"]

STEPPED = "options=-c%20default_transaction_isolation%3Dserializable"
"""The option of a URL of stepped clients."""

_LOOK = 0.02  # seconds between two looks at who waits for a lock
_BLOCKED = "SELECT pid FROM unnest(%s::int[]) AS pid WHERE cardinality(pg_blocking_pids(pid)) > 0"
_END = "SELECT pg_terminate_backend(%s, 20000)"


class _State(Enum):
    RUNS = "runs"
    STOPS = "stops"
    ENDED = "ended"


class _Client:
    def __init__(self, do: Callable[[], None], changes: threading.Condition) -> None:
        self.state, self.pid = _State.RUNS, 0
        self._do, self._changes = do, changes
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run)

    def stop(self, pid: int) -> None:
        """Wait for its turn."""
        with self._changes:
            self.pid, self.state = pid, _State.STOPS
            self._changes.notify_all()
            self._changes.wait_for(lambda: self.state is _State.RUNS)

    def go_on(self) -> None:
        self.state = _State.RUNS
        self._changes.notify_all()

    def _run(self) -> None:
        try:
            self._do()
        except BaseException as error:
            self.error = error
        with self._changes:
            self.state = _State.ENDED
            self._changes.notify_all()


class Scheduler:
    """Lets clients run against each other."""

    def __init__(self, monitor: psycopg.Connection[Any]) -> None:
        self._monitor = monitor
        self._changes = threading.Condition()
        self._clients: Mapping[threading.Thread, _Client] = {}

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Stop the threads of clients before their statements."""
        with pytest.MonkeyPatch.context() as patched:
            for name in ("all", "one", "run", "script"):
                patched.setattr(Sql, name, self._stepped(getattr(Sql, name)))
            yield

    def run(self, work: Sequence[Callable[[], None]], chance: random.Random, *, faults: int = 0) -> None:
        """Do all of the work in threads, step by step; ``faults`` connections are terminated at some step."""
        clients = [_Client(do, self._changes) for do in work]
        self._clients = {client.thread: client for client in clients}
        with self._changes:
            for client in clients:
                client.thread.start()
            while any(client.state is not _State.ENDED for client in clients):
                self._settle(clients)
                stopped = [client for client in clients if client.state is _State.STOPS]
                if not stopped:
                    continue
                chosen = chance.choice(stopped)
                if faults and chance.random() < 0.1:
                    faults -= 1
                    self._monitor.execute(_END, (chosen.pid,))
                chosen.go_on()
        for client in clients:
            client.thread.join()
        for client in clients:
            if client.error is not None:
                raise client.error

    def _settle(self, clients: Sequence[_Client]) -> None:
        """Return when each client has stopped, has ended, or waits for another one."""
        while running := [client for client in clients if client.state is _State.RUNS]:
            if self._changes.wait(_LOOK):
                continue
            waiting = self._monitor.execute(_BLOCKED, ([client.pid for client in running],)).fetchall()
            if len(waiting) == len(running) < len([c for c in clients if c.state is not _State.ENDED]):
                return

    def _stepped(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(sql: Sql, *args: object) -> Any:
            client = self._clients.get(threading.current_thread())
            if client is not None:
                client.stop(sql.connection.info.backend_pid)
            return real(sql, *args)

        return step
