"""The tool that starts servers leaves none behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pymongo
import pytest
from pymongo.errors import ServerSelectionTimeoutError

pytestmark = pytest.mark.mongodb

TOOL = Path(__file__).parents[2] / "tools" / "servers" / "mongodb.py"
TELL_AND_WAIT = "import sys, time; print(sys.argv[1], flush=True); time.sleep(60)"


def test_a_server_ends_with_the_tool_that_was_told_to_end() -> None:
    command = [
        sys.executable,
        str(TOOL),
        "--members",
        "0",
        "run",
        "--",
        sys.executable,
        "-c",
        TELL_AND_WAIT,
        "{url}",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tool:
        url = tool.stdout.readline().strip()
        with pymongo.MongoClient(url, serverSelectionTimeoutMS=1_000) as client:
            assert client.admin.command("ping")["ok"] == 1
            tool.send_signal(signal.SIGTERM)
            assert tool.wait(30) == 128 + signal.SIGTERM
            with pytest.raises(ServerSelectionTimeoutError):
                client.admin.command("ping")


def test_servers_that_start_at_the_same_time_do_not_meet_and_leave_nothing(tmp_path: Path) -> None:
    command = [sys.executable, str(TOOL), "--members", "0", "run", "--", "echo", "{url}"]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    tools = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(3)]
    urls = [tool.communicate(timeout=240)[0] for tool in tools]
    assert [tool.returncode for tool in tools] == [0, 0, 0]
    assert len(set(urls)) == 3
    assert list(tmp_path.iterdir()) == []
