"""The comparison of tasks, as far as it needs no server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_tasks_are_measured_on_sqlite_without_any_peer() -> None:
    command = [
        sys.executable,
        "-m",
        "tools.bench.tasks",
        "--tasks",
        "50",
        "--singles",
        "20",
        "--chord",
        "20",
        "--rounds",
        "1",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told, *lines = done.stdout.splitlines()
    assert told.startswith("50 tasks, a chord of 20, 1 rounds; load")
    assert [line[:26].strip() for line in lines] == [
        "chord, s",
        "run/s with results",
        "run/s without results",
        "sent/s one by one",
        "sent/s with results",
        "sent/s without results",
        "µs of cpu with results",
        "µs of cpu without results",
    ]
    assert all("shardq, SQLite" in line and float(line.split()[-1].replace(",", "")) > 0 for line in lines)
