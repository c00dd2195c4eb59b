"""The server that the tests start by themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.local_server import TOOLS

pytestmark = [pytest.mark.server, pytest.mark.long]


def tool(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(TOOLS / "cassandra.py"), *words]
    return subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, check=False, timeout=240
    )


def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    broken = "-Dcassandra.config.allow_system_properties=true -Dcassandra.settings.paxos_variant=v9"
    ended = tool("start", "--short-lived", "--folder", str(tmp_path), JAVA_TOOL_OPTIONS=broken)
    assert ended.returncode == 1
    assert f"the end of {tmp_path}" in ended.stderr
    assert "Unable to find enum value 'v9'" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.long
def test_servers_that_start_at_the_same_time_do_not_meet_and_leave_nothing(tmp_path: Path) -> None:
    def run(_: int) -> str:
        ended = tool("run", "--short-lived", "--heap", "384m", "--", "echo", "{url}", TMPDIR=str(tmp_path))
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    with ThreadPoolExecutor(2) as both:
        urls = list(both.map(run, range(2)))
    assert len(set(urls)) == 2
    assert list(tmp_path.iterdir()) == []
