"""What the sync client promises, the asyncio client keeps: the same tests pass on it, behind an adapter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = [
    "dedupe_keys", "groups", "last_deliveries", "moved_messages", "popping", "receiving", "results", "sending",
    "settling", "traces", "ttl", "unique_keys",
]  # fmt: skip


@pytest.mark.parametrize("file", FILES)
def test_the_tests_of_the_sync_client_pass_on_the_asyncio_client(file: str, tmp_path: Path) -> None:
    options = ["-q", "-x", "-p", "tests.aio.adapter", "-p", "no:cacheprovider", "-m", "not server"]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *options, f"--basetemp={tmp_path}/api", f"tests/api/test_{file}.py"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout[-5_000:]
