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
