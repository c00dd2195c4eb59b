"""The tool that starts servers leaves none behind."""

from __future__ import annotations

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
