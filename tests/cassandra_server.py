"""The Cassandra that tests run on: a given one, one in Docker, or one started on this computer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from local_server import docker_answers, local_server

VARIABLE = "SHARDQ_TEST_CASSANDRA_URL"
IMAGE = "cassandra:5.0"


@pytest.fixture(scope="session")
def cassandra_url() -> Iterator[str]:
    """The URL of a keyspace on a running server."""
    given = os.environ.get(VARIABLE)
    if given:
        yield given
        return
    if docker_answers():
        with _in_docker() as url:
            yield url
    else:
        with local_server("cassandra") as (url, _):
            yield url


@contextmanager
def _in_docker() -> Iterator[str]:
    from testcontainers.community.cassandra import CassandraContainer

    with CassandraContainer(IMAGE) as container:  # waits until the server's log says that it has started
        ((host, port),) = container.get_contact_points()
        yield f"cassandra://{host}:{port}/shardq"
