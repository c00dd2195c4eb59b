"""What each feature costs: every kind goes all the way, and has a row."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tools.bench.feature_times import KINDS, PLAIN
from tools.bench.features import NOW

ROOT = Path(__file__).parents[2]


def test_every_kind_has_a_row_with_its_cost(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    few = [
        "--messages",
        "20",
        "--singles",
        "2",
        "--rounds",
        "1",
        "--before",
        f"an older one={sys.executable}",
    ]
    command = [
        sys.executable,
        "-m",
        "tools.bench.features",
        f"sqlite:///{tmp_path}/costs.db",
        *few,
        "--page",
        str(page),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = dict(
        line.strip("| ").split(" | ", 1) for line in page.read_text().splitlines() if line.startswith("| ")
    )
    now = f"{NOW}, beside an older one"
    assert {*KINDS, now} <= rows.keys()
    assert rows[PLAIN].count("/s**") == 2
    assert all(rows[kind].count("x** (") == 2 for kind in {*KINDS, now} - {PLAIN})


def test_rows_of_kinds_that_are_measured_by_themselves_are_new_and_others_stay(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# Page\n\n|  | SQLite |\n| plain | 1 |\n| ttl | old |\n| events | old |\n| plain, now | 1 |\n\n- Note.\n"
    )
    command = [
        sys.executable,
        "-m",
        "tools.bench.features",
        f"sqlite:///{tmp_path}/costs.db",
        "--page",
        str(page),
    ]
    few = [
        "--messages",
        "20",
        "--singles",
        "2",
        "--rounds",
        "1",
        "--only",
        "ttl",
        "--only",
        "a large body of one part",
    ]
    done = subprocess.run([*command, *few], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = page.read_text().splitlines()
    first = [line.split(" | ")[0].strip("| ") for line in lines if line.startswith("| ")]
    assert first == ["", "plain", "ttl", "events", "a large body of one part", "plain, now"]
    assert "| events | old |" in lines
    assert "| ttl | old |" not in lines
    assert any("ttl; a large body of one part." in line for line in lines)
