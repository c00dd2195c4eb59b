"""``shardq schedule`` creates, shows, changes and deletes schedules."""

from __future__ import annotations

import json
import re
from pathlib import Path

from click.testing import CliRunner

from shardq.cli.main import main


def run(folder: Path, *arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, ["--url", f"sqlite:///{folder}/queue.db", *arguments])
    return result.exit_code, result.stdout, result.stderr


def test_a_schedule_is_created_shown_changed_and_deleted(tmp_path: Path) -> None:
    run(tmp_path, "create", "q")
    assert run(tmp_path, "schedule", "list")[:2] == (0, "")
    _, shown, _ = run(
        tmp_path, "schedule", "create", "s", "q", "--cron", "30 2 * * *", "--time-zone", "Europe/Berlin", "--json"
    )  # fmt: skip
    assert json.loads(shown)["cron"] == "30 2 * * *"
    assert run(tmp_path, "schedule", "pause", "s")[0] == 0
    assert "paused" in run(tmp_path, "schedule", "list", "q")[1]
    assert run(tmp_path, "schedule", "resume", "s")[0] == 0
    code, shown, _ = run(tmp_path, "schedule", "alter", "s", "--every", "1h", "--body", "hello")
    assert code == 0
    assert "3600" in shown
    assert "every 3600 s" in run(tmp_path, "schedule", "list")[1]
    assert run(tmp_path, "schedule", "trigger", "s")[1].startswith("q:")
    assert "hello" in run(tmp_path, "receive", "q")[1]
    shown = run(tmp_path, "schedule", "show", "s")[1]
    assert "hello" in shown
    assert "catch up   one" in shown
    assert "paused     no\n" in shown
    assert re.search(r"^next +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$", shown, re.MULTILINE)
    assert len(json.loads(run(tmp_path, "schedule", "list", "--json")[1])["schedules"]) == 1
    assert run(tmp_path, "schedule", "delete", "s")[0] == 0


def test_what_is_wrong_is_told_in_one_line(tmp_path: Path) -> None:
    run(tmp_path, "create", "q")
    for code, arguments in [
        (2, ["create", "s", "q"]),
        (2, ["create", "s", "q", "--cron", "x"]),
        (2, ["create", "s", "q", "--every", "5", "--time-zone", "Mars"]),
        (3, ["create", "s", "none", "--every", "5"]),
        (3, ["pause", "s"]),
        (3, ["show", "s"]),
        (2, ["delete", "a:b"]),
    ]:
        exit_code, _, told = run(tmp_path, "schedule", *arguments)
        assert exit_code == code, arguments
        assert len(told.splitlines()) == 1
