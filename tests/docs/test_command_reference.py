"""The command reference says what the commands say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from shardq.cli.command_table import COMMANDS

ROOT = Path(__file__).parents[2]


def test_the_command_reference_is_up_to_date() -> None:
    tool = [sys.executable, str(ROOT / "tools" / "command_reference.py"), "--check"]
    done = subprocess.run(tool, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_command_is_in_the_reference() -> None:
    page = (ROOT / "docs" / "commands.md").read_text()
    assert [name for name in COMMANDS if f"\n### {name}\n" not in page] == []
