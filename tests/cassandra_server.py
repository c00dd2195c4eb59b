"""The Cassandra that tests run on: a given one, one in Docker, or one started on this computer.

A server that cannot be had fails the tests in CI and skips them on a laptop.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

VARIABLE = "SHARDQ_TEST_CASSANDRA_URL"
TOOL = Path(__file__).parents[1] / "tools" / "servers" / "cassandra.py"
IMAGE = "cassandra:5.0"


@pytest.fixture(scope="session")
def cassandra_url() -> Iterator[str]:
    """The URL of a keyspace on a running server."""
    given = os.environ.get(VARIABLE)
    if given:
        yield given
        return
    if _docker_answers():
        with _in_docker() as url:
            yield url
    else:
        with local_cassandra() as (url, _):
            yield url


def _docker_answers() -> bool:
    if shutil.which("docker") is None or find_spec("testcontainers") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0


@contextmanager
def _in_docker() -> Iterator[str]:
    from testcontainers.community.cassandra import CassandraContainer

    with CassandraContainer(IMAGE) as container:  # waits until the server's log says that it has started
        ((host, port),) = container.get_contact_points()
        yield f"cassandra://{host}:{port}/shardq"


@contextmanager
def local_cassandra(*options: str) -> Iterator[tuple[str, Path]]:
    """A server on this computer that is stopped at the end: its URL, and the folder of its nodes."""
    with tempfile.TemporaryDirectory(prefix="shardq-cassandra-") as folder:
        tool = [sys.executable, str(TOOL)]
        started = subprocess.run(
            [*tool, "start", "--folder", folder, *options], capture_output=True, text=True, check=False
        )
        if started.returncode:
            missing = f"no Cassandra could be started: {started.stderr.strip()}"
            if os.environ.get("CI"):
                pytest.fail(missing, pytrace=False)
            pytest.skip(missing)
        try:
            yield started.stdout.strip(), Path(folder)
        finally:
            subprocess.run([*tool, "stop", "--folder", folder], check=True)
