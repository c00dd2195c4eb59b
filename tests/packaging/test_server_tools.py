"""The tools that start servers tell what they need, also where nothing but Python is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools" / "servers"


@pytest.mark.parametrize("tool", ["cassandra", "elasticmq", "kafka", "mongodb", "postgresql", "redis_server"])
def test_a_tool_has_help_without_any_package(tool: str) -> None:
    command = [sys.executable, "-S", str(TOOLS / f"{tool}.py"), "--help"]
    assert "usage:" in subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_the_tool_of_mongodb_names_the_package_that_it_lacks(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-S",
        str(TOOLS / "mongodb.py"),
        "start",
        "--folder",
        str(tmp_path / "servers"),
    ]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode != 0
    assert "pip install pymongo" in told.stderr
    assert "Traceback" not in told.stderr
