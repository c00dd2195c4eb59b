"""The tools that start servers leave none behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pymongo
import pytest
from pymongo.errors import ServerSelectionTimeoutError

from tests.processes import running

pytestmark = pytest.mark.server

TOOL = Path(__file__).parents[2] / "tools" / "servers" / "mongodb.py"
TELL_AND_WAIT = "import os, time; print(os.environ['SHARDQ_TEST_MONGODB_URL'], flush=True); time.sleep(60)"


@pytest.mark.parametrize("tools", [1, 2])
def test_servers_end_with_the_tool_that_was_told_to_end(tools: int) -> None:
    """Also the server of a tool that runs within another one."""
    tool = [sys.executable, str(TOOL), "--members", "0", "run", "--"]
    command = [*tool * tools, sys.executable, "-c", TELL_AND_WAIT]
    with running(command, stdout=subprocess.PIPE) as outer:
        url = outer.stdout.readline().strip()
        with pymongo.MongoClient(url, serverSelectionTimeoutMS=1_000) as client:
            assert client.admin.command("ping")["ok"] == 1
            outer.send_signal(signal.SIGTERM)
            assert outer.wait(60) == 128 + signal.SIGTERM
            with pytest.raises(ServerSelectionTimeoutError):
                client.admin.command("ping")


def test_servers_that_start_at_the_same_time_do_not_meet_and_leave_nothing(tmp_path: Path) -> None:
    command = [sys.executable, str(TOOL), "--members", "0", "run", "--", "echo", "{url}"]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with ExitStack() as started:
        all_three = [running(command, stdout=subprocess.PIPE, env=environment) for _ in range(3)]
        tools = [started.enter_context(each) for each in all_three]
        urls = [tool.communicate(timeout=240)[0] for tool in tools]
    assert [tool.returncode for tool in tools] == [0, 0, 0]
    assert len(set(urls)) == 3
    assert list(tmp_path.iterdir()) == []
