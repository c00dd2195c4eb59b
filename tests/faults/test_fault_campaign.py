"""Small campaigns on SQLite: a store that keeps its promises passes, and a broken one is caught."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from tools.faults.round import Round

pytestmark = pytest.mark.timeout(600)  # 40 seconds where the computer has nothing else to do

ROWS = 200  # which Spark sends beside these, where there is Java
ROOT = Path(__file__).parents[2]


def campaign(folder: Path, *words: str, seed: int = 1) -> tuple[int, Round]:
    size = ["--messages", "4000", "--seconds", "10", "--seed", str(seed)]
    tool = [str(ROOT / "tools" / "faults" / "run"), *size, *words]
    done = subprocess.run(
        [*tool, "--output", str(folder)],
        env=os.environ | {"PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.returncode, msgspec.json.decode(
        (folder / f"sqlite-{seed}-1" / "report.json").read_bytes(), type=Round
    )


def promises(report: Round) -> Sequence[str]:
    return [offence.promise for offence in report.verdict.offences]


def test_a_store_that_keeps_its_promises_passes(tmp_path: Path) -> None:
    code, report = campaign(tmp_path)
    assert (code, promises(report), report.problems) == (0, [], ())
    assert report.verdict.figures["sent"] + report.verdict.figures["send failed"] <= 4000 + ROWS
    assert report.verdict.figures["acked"] > 3000
    assert len(report.deeds) >= len(report.steps) > 5


def test_a_broken_store_is_caught_with_the_histories_of_the_messages(tmp_path: Path) -> None:
    """The defect shows about four times in 4,000 messages. That each rule finds its offence is tested on histories."""
    promise = "acked but redelivered"
    for seed in range(1, 5):
        code, report = campaign(tmp_path, "--defect", "DropsOneAckInAThousand", seed=seed)
        if promise in promises(report):
            break
    assert code == 1
    assert promise in promises(report)
    offence = next(each for each in report.verdict.offences if each.promise == promise)
    assert offence.count >= len(offence.histories) > 0 and all(offence.histories.values())
