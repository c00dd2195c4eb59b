"""The Redis that tests run on: a given one, or one that is started on this computer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.local_server import TOOLS, lasting_server, local_server, worker

VARIABLE = "SHARDQ_TEST_REDIS_URL"


@dataclass(frozen=True)
class OwnRedis:
    """A server that a test may kill and start again."""

    url: str
    folder: Path

    def kill(self) -> None:
        """End it at once."""
        (pid_file,) = self.folder.glob("*/pid")
        os.kill(int(pid_file.read_text()), signal.SIGKILL)

    def start(self) -> None:
        """Start it again, at the same place."""
        tool = [sys.executable, str(TOOLS / "redis_server.py"), "start", "--folder", str(self.folder)]
        subprocess.run(tool, check=True, capture_output=True)


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """The URL of a running server."""
    if VARIABLE in os.environ:
        yield os.environ[VARIABLE]
    else:
        yield lasting_server("redis_server", among=worker())


@pytest.fixture
def own_redis() -> Iterator[OwnRedis]:
    """A server of the test's own."""
    if VARIABLE in os.environ:
        pytest.skip("the tests run on the one server that was given")
    with _server() as own:
        yield own


@pytest.fixture
def guarded_redis() -> Iterator[OwnRedis]:
    """A server of the test's own that asks for a password."""
    if VARIABLE in os.environ:
        pytest.skip("the tests run on the one server that was given")
    with _server("--authenticated") as own:
        yield own


@contextmanager
def _server(*options: str) -> Iterator[OwnRedis]:
    with local_server("redis_server", *options) as (url, folder):
        yield OwnRedis(url, folder)
