"""The MongoDB that tests run on: a given one, one in Docker, or one started on this computer.

A server that cannot be had fails the tests in CI and skips them on a laptop.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

VARIABLE = "SHARDQ_TEST_MONGODB_URL"
TOOL = Path(__file__).parents[1] / "tools" / "servers" / "mongodb.py"
IMAGE = "mongo:7.0"


@pytest.fixture(scope="session", params=["standalone", "replica set"])
def mongodb_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a database on a running server; given, in Docker, or a standalone and a replica set of one."""
    given = os.environ.get(VARIABLE)
    if given or _docker_answers():
        if request.param != "standalone":
            pytest.skip("the tests run on the one server that was given")
        with _given(given) if given else _in_docker() as url:
            yield url
        return
    members = "1" if request.param == "replica set" else "0"
    with started("--members", members, "--failpoints") as url:
        yield url


@contextmanager
def started(*options: str) -> Iterator[str]:
    """A server on this computer, with options of the tool that starts it."""
    with tempfile.TemporaryDirectory(prefix="shardq-mongodb-") as folder:
        tool = [sys.executable, str(TOOL)]
        done = subprocess.run(
            [*tool, "start", "--folder", folder, *options], capture_output=True, text=True, check=False
        )
        if done.returncode:
            missing = f"no MongoDB could be started: {done.stderr.strip()[-500:]}"
            if os.environ.get("CI"):
                pytest.fail(missing)
            pytest.skip(missing)
        try:
            yield done.stdout.strip()
        finally:
            subprocess.run([*tool, "stop", "--folder", folder], check=True)


def _docker_answers() -> bool:
    try:
        import docker  # noqa: F401
        import testcontainers  # noqa: F401
    except ImportError:
        return False
    return subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0


@contextmanager
def _given(url: str) -> Iterator[str]:
    yield url


@contextmanager
def _in_docker() -> Iterator[str]:
    from testcontainers.community.mongodb import MongoDbContainer

    with MongoDbContainer(IMAGE) as container:
        yield container.get_connection_url() + "/shardq?authSource=admin"
