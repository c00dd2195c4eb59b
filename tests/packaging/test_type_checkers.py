"""What mypy tells those who use the package: a wrong setting is an error, a right one is none."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

CALLS = """\
import shardq

with shardq.connect("sqlite:///queue.db") as client:
    queue = client.create_queue("orders", exist_ok=True, shards=4, retention=None, visibility_timeout=30)
    queue.alter(max_deliveries=None, sends_paused=True, dead_letter_queue="orders.failed")
    state: shardq.EntryState = queue.peek()[0].state
    facts: tuple[shardq.Finding, ...] = client.diagnose()
    client.create_queue("orders", shard=4)  # wrong
    client.create_queue("orders", shards="4")  # wrong
    client.create_queue("orders", exist_okay=True)  # wrong
    queue.alter(visibility_timout=30)  # wrong
    queue.alter(retention="7d")  # wrong
    queue.alter({"shards": 4})  # wrong
    shardq.conect("sqlite:///queue.db")  # wrong
"""


def test_mypy_finds_a_misspelled_or_mistyped_setting_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "calls.py"
    file.write_text(CALLS)
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--no-error-summary"]
    command += [
        "--hide-error-context",
        "--no-pretty",
        "--config-file=",
        "--cache-dir",
        str(tmp_path),
        str(file),
    ]
    checked = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    found = {int(line) for line in re.findall(r"^calls\.py:(\d+): error", checked.stdout, re.MULTILINE)}
    wrong = {number for number, line in enumerate(CALLS.splitlines(), 1) if line.endswith("# wrong")}
    assert found == wrong, checked.stdout + checked.stderr
