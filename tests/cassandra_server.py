"""The Cassandra that tests run on: a given one, one in Docker, or one started on this computer.

All processes that run tests share it, each with keyspaces of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit, urlunsplit

import pytest

from tests.local_server import docker_answers, lasting_server, worker

VARIABLE = "SHARDQ_TEST_CASSANDRA_URL"
IMAGE = "cassandra:5.0"
TOMBSTONES = 2000
"""How many a read may cross on the server that is narrow about them."""


@pytest.fixture(scope="session")
def cassandra_url() -> Iterator[str]:
    """The URL of a keyspace on a running server."""
    given = os.environ.get(VARIABLE)
    if given:
        yield _own_keyspace(given)
    elif docker_answers():
        with _in_docker() as url:
            yield url
    else:
        yield _own_keyspace(lasting_server("cassandra", "--short-lived"))


@pytest.fixture(scope="session")
def narrow_cassandra_url() -> str:
    """The URL of a keyspace on a server with the older variant of Paxos that refuses reads of few tombstones already.

    No container is told so: it is always one that is started on this computer.
    """
    options = ("--paxos", "v1", "--tombstones", str(TOMBSTONES), "--heap", "512m")
    return _own_keyspace(lasting_server("cassandra", "--short-lived", *options))


def keyspace_beside(url: str, name: str) -> str:
    """The URL of another keyspace that no other process uses."""
    scheme, host, path, query, fragment = urlsplit(url)
    return urlunsplit((scheme, host, f"{path}_{name}", query, fragment))


def _own_keyspace(url: str) -> str:
    return keyspace_beside(url, worker())


@contextmanager
def _in_docker() -> Iterator[str]:
    from testcontainers.community.cassandra import CassandraContainer

    with CassandraContainer(IMAGE) as container:  # waits until the server's log says that it has started
        ((host, port),) = container.get_contact_points()
        yield f"cassandra://{host}:{port}/shardq"
