"""The MongoDB that tests run on: a given one, one in Docker, or two started on this computer.

Each process that runs tests has its own: some tests make the whole server slow or let it fail.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit, urlunsplit

import pytest

from tests.local_server import ALONE, docker_answers, lasting_server, worker

VARIABLE = "SHARDQ_TEST_MONGODB_URL"
IMAGE = "mongo:7.0"
MEMBERS = {"standalone": "0", "replica set": "1"}


@pytest.fixture(scope="session", params=MEMBERS)
def mongodb_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a database on a running server."""
    if request.param != "standalone" and _is_elsewhere():
        pytest.skip("the tests run on the one server that was given")
    with _server(MEMBERS[request.param]) as url:
        yield url


@pytest.fixture(scope="session")
def replica_set_url() -> Iterator[str]:
    """The URL of a database on a replica set of one, for tests that need one server only."""
    with _server(MEMBERS["replica set"]) as url:
        yield url


def _is_elsewhere() -> bool:
    return VARIABLE in os.environ or docker_answers()


@contextmanager
def _server(members: str) -> Iterator[str]:
    if VARIABLE in os.environ:
        yield _own_database(os.environ[VARIABLE])
    elif docker_answers():
        with _in_docker() as url:
            yield url
    else:
        yield lasting_server("mongodb", "--members", members, "--failpoints", among=worker())


def _own_database(url: str) -> str:
    """Another database for each of several processes."""
    scheme, host, path, query, fragment = urlsplit(url)
    own = urlunsplit((scheme, host, f"{path}_{worker()}", query, fragment))
    return url if worker() == ALONE else own


@contextmanager
def _in_docker() -> Iterator[str]:
    from testcontainers.community.mongodb import MongoDbContainer

    with MongoDbContainer(IMAGE) as container:
        yield container.get_connection_url() + "/shardq?authSource=admin"
