"""The PostgreSQL that tests run on: a given one, one in Docker, or one started on this computer."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.local_server import docker_answers, lasting_server

VARIABLE = "SHARDQ_TEST_POSTGRESQL_URL"
IMAGE = "postgres:17"


@pytest.fixture(scope="session")
def postgresql_url() -> Iterator[str]:
    """The URL of a database on a running server. Tests take a schema of their own there."""
    if VARIABLE in os.environ:
        yield os.environ[VARIABLE]
    elif docker_answers():
        from testcontainers.community.postgres import PostgresContainer

        with PostgresContainer(IMAGE, driver=None) as container:
            yield container.get_connection_url()
    else:
        yield lasting_server("postgresql", "--without-fsync")
