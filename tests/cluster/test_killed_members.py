"""A replica set of three whose primary dies, and the next one hangs, while producers and consumers are at work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.turmoil import endure
from tests.local_server import TOOLS, local_server

pymongo = pytest.importorskip("pymongo", reason="the extra `mongodb` is not installed")

pytestmark = pytest.mark.timeout(300)

MEMBERS = ("--members", "3", "--cache", "0.25")
OPTIONS = "socketTimeoutMS=4000&connectTimeoutMS=4000"


class Members:
    """The members of a replica set on this computer."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self._folder = f"{url}&{OPTIONS}", folder
        self._paused = 0

    def kill(self) -> None:
        os.kill(self._primary(), signal.SIGKILL)

    def start(self) -> None:
        tool = [sys.executable, str(TOOLS / "mongodb.py"), "start", *MEMBERS, "--folder", str(self._folder)]
        subprocess.run(tool, check=True, capture_output=True)

    def pause(self) -> None:
        self._paused = self._primary()
        os.kill(self._paused, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self._paused, signal.SIGCONT)

    def _primary(self) -> int:
        """The process of the primary of now."""
        with pymongo.MongoClient(self.url) as client:
            client.admin.command("ping")
            _, port = client.primary
        return int((self._folder / str(port) / "pid").read_text())


@pytest.fixture(scope="module")
def members() -> Iterator[Members]:
    with local_server("mongodb", *MEMBERS) as (url, folder):
        yield Members(url, folder)


def test_what_was_acknowledged_outlives_a_killed_primary_and_one_that_hangs(
    members: Members, tmp_path: Path
) -> None:
    endure(members, tmp_path, lease=10.0, seconds=5.0)
