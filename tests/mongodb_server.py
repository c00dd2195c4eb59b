"""The MongoDB that tests run on: a given one, one in Docker, or two started on this computer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from local_server import docker_answers, local_server

VARIABLE = "SHARDQ_TEST_MONGODB_URL"
IMAGE = "mongo:7.0"
MEMBERS = {"standalone": "0", "replica set": "1"}


@pytest.fixture(scope="session", params=MEMBERS)
def mongodb_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a database on a running server."""
    given = os.environ.get(VARIABLE)
    if given or docker_answers():
        if request.param != "standalone":
            pytest.skip("the tests run on the one server that was given")
        with _in_docker() if not given else _given(given) as url:
            yield url
        return
    with local_server("mongodb", "--members", MEMBERS[request.param], "--failpoints") as (url, _):
        yield url


@contextmanager
def _given(url: str) -> Iterator[str]:
    yield url


@contextmanager
def _in_docker() -> Iterator[str]:
    from testcontainers.community.mongodb import MongoDbContainer

    with MongoDbContainer(IMAGE) as container:
        yield container.get_connection_url() + "/shardq?authSource=admin"
