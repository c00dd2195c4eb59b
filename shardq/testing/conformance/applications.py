"""The ground of the contracts of the packages on the port: clients of the public API, each in another store."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import ParamSpec, TypeVar

import pytest

from shardq.base.shard import INTERNAL, TOPICS_FOLDER
from shardq.client import Client
from shardq.errors import ShardqError, StoreUnavailable
from shardq.storage.store import Capabilities, Store
from shardq.storage.wrapped_store import WrappedStore
from shardq.testing.audit import broken_rows, hidden
from shardq.testing.harness import StoreHarness

__all__ = ["ApplicationContract", "Applications"]

P = ParamSpec("P")
T = TypeVar("T")

_PATIENCE = 400  # steps, of a second of the test each


class _Connection(WrappedStore):
    """A store that a client may close, and a test cut off; the harness gets it back."""

    cut = False

    def close(self) -> None:
        """Leave the store to the harness; a thread of the client that still runs asks nothing more of it."""
        self.cut = True

    def call(self, method: str, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self.cut:
            raise StoreUnavailable(f"{method}: this client is as good as dead", retryable=False)
        return super().call(method, do, *args, **kwargs)


class Applications:
    """Clients of one storage, as of several processes. Queues that are named by ``name`` are deleted at the end."""

    def __init__(self, harness: StoreHarness) -> None:
        self.harness, self.name = harness, f"t{os.urandom(6).hex()}"
        self._stores: list[Store] = []
        self._connections: dict[int, _Connection] = {}
        self._clients: list[Client] = []
        self.client, self.other = self.connect(), self.connect()

    def connect(self) -> Client:
        """Open a further client."""
        self._stores.append(self.harness.open())
        connection = _Connection(self._stores[-1])
        self._clients.append(Client(connection))
        self._connections[id(self._clients[-1])] = connection
        return self._clients[-1]

    @property
    def capabilities(self) -> Capabilities:
        """The abilities of the store under test, after a request: some of them are known from a server's members."""
        self._stores[0].ping()
        return self._stores[0].capabilities

    def kill(self, client: Client) -> None:
        """Let nothing of a client reach the storage any more, as when its process was killed."""
        self._connections[id(client)].cut = True

    def seconds(self, seconds: float) -> float:
        """Convert seconds of the test to those of a setting."""
        return seconds * self.harness.time_scale

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` of the test pass."""
        self.harness.advance(self.seconds(seconds))

    def until(self, condition: Callable[[], bool], *, steps: int = _PATIENCE) -> bool:
        """Let time pass until it holds; False if it never did."""
        for _ in range(steps):
            if condition():
                return True
            self.advance(1)
        return condition()

    def queues(self) -> tuple[str, ...]:
        """Return all queues that there are under the name, those of its topic and its schedules among them."""
        folders = ("", TOPICS_FOLDER, f"{INTERNAL}schedules/")
        return tuple(
            queue for folder in folders for queue in self._stores[0].list_queues(f"{folder}{self.name}")
        )

    def audit(self) -> None:
        """Check the rows of every queue against what the port shows of them."""
        found: list[str] = []
        for queue in self.queues():
            raw = self.harness.raw_queue(queue)
            found += broken_rows(raw) + hidden(raw, self._stores[0])
        assert not found, found

    def close(self) -> None:
        """Close the clients."""
        for client in self._clients:
            with suppress(ShardqError):  # of those that were killed
                client.close()

    def clear(self) -> None:
        """Delete the queues, and give the stores back to the harness."""
        self.harness.discard(self._stores[0], self.queues())
        for store in self._stores:
            self.harness.finish(store)


class ApplicationContract:
    """Tests of one feature of the public API. The store's author provides the ``harness`` fixture."""

    @pytest.fixture
    def apps(self, harness: StoreHarness) -> Iterator[Applications]:
        """Open two clients; when the test has ended, audit the queues under its name."""
        apps = Applications(harness)
        try:
            yield apps
            apps.close()
            apps.audit()
        finally:
            apps.close()
            apps.clear()
