"""Fixtures for tests that run on a store of each kind: import them into a conftest."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

import shardq

__all__ = ["any_url", "connect_any", "name"]


@pytest.fixture(
    params=[
        "url",
        pytest.param("cassandra_url", marks=pytest.mark.server),
        pytest.param("replica_set_url", marks=pytest.mark.server),
        pytest.param("postgresql_url", marks=pytest.mark.server),
    ]
)
def any_url(request: pytest.FixtureRequest) -> str:
    """The URL of a store of each kind, whose time is real."""
    return str(request.getfixturevalue(request.param))


@pytest.fixture
def connect_any(any_url: str) -> Iterator[Callable[[], shardq.Client]]:
    """Opens independent clients of one store of each kind."""
    clients: list[shardq.Client] = []

    def open_client() -> shardq.Client:
        clients.append(shardq.connect(any_url))
        return clients[-1]

    yield open_client
    for client in clients:
        client.close()


@pytest.fixture
def name(connect_any: Callable[[], shardq.Client]) -> Iterator[str]:
    """A name that no other test has. What is called so is deleted afterwards."""
    name = f"fresh{os.urandom(4).hex()}"
    yield name
    client = connect_any()
    for queue in client.queues(name):
        client.delete_queue(queue) if client.exists(queue) else None
