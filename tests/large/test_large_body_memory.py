"""A hundred megabytes go through a client that holds a few of them at a time, and leave nothing whoever is killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_a_hundred_megabytes_take_less_than_64_of_memory_and_leave_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tools.bench.large_bodies", f"sqlite:///{tmp_path}/films.db"]
    done = subprocess.run(
        [*command, "--kills", "1", "--most", "64"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(": 0 parts are left") == 5
