"""The example of docs/examples/flights, on a small data set of the same columns as the real one."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import shardq

FOLDER = Path(__file__).parents[2] / "docs" / "examples" / "flights"
CARRIERS = ("UA", "DL", "9E", "B6", "OO")
NEVER_LEFT = {"dep_delay": "NA", "arr_delay": "NA"}
NEVER_ARRIVED = {"arr_delay": "NA"}


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The example's module that compares the results with the file."""
    monkeypatch.syspath_prepend(FOLDER)
    import flight_check

    return flight_check


def flight(columns: tuple[str, ...], row: int) -> dict[str, object]:
    """A row of its own for every number: every 11th flight never left, every 13th never arrived."""
    own = {"dep_delay": row % 97 - 10, "arr_delay": row % 89 - 20, "carrier": CARRIERS[row % len(CARRIERS)]}
    unknown = NEVER_LEFT if row % 11 == 0 else NEVER_ARRIVED if row % 13 == 0 else {}
    return dict.fromkeys(columns, "x") | {"flight": row} | own | unknown


def test_a_killed_worker_loses_no_flight_and_the_run_leaves_no_queue(check, tmp_path, url) -> None:
    columns = sys.modules["flight_data"].COLUMNS
    with (tmp_path / "flights.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(flight(columns, row) for row in range(1, 1_001))
    options = ["--url", url, "--data", tmp_path / "flights.csv", "--batch", "50", "--visibility-timeout", "1"]

    done = subprocess.run(
        [sys.executable, FOLDER / "flights.py", *options], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
    found = {line[6:40].strip(): line[40:].split()[0] for line in done.stdout.splitlines()}
    assert int(found.pop("delivered again after the kill")) > 0
    assert "a worker was killed" in done.stderr
    assert found == {
        "flights sent": "1,000",
        "flights with a result": "1,000",
        "results that differ from the file": "0",
        "results of one delivery twice": "0",
        "messages left in the queue": "0",
        "dead letters": "0",
    }
    with shardq.connect(url) as client:
        assert client.queues() == ()


ROWS = [["x"] * 5 + [departure, "x", "x", arrival, carrier] for departure, arrival, carrier in (
    ("2", "11", "UA"), ("NA", "NA", "DL"), ("-3", "-20", "UA"), ("5", "NA", "B6"),
)]  # fmt: skip
RESULTS = [
    (1, "UA", 2, 11, -9, 1), (2, "DL", None, None, None, 1), (3, "UA", -3, -20, 17, 1), (4, "B6", 5, None, None, 1),
]  # fmt: skip
WRONG = {
    "nothing": (RESULTS, {}, []),
    "a missing result": (RESULTS[1:], {}, ["flights with a result"]),
    "another arrival": ([(1, "UA", 2, 12, -10, 1), *RESULTS[1:]], {}, ["results that differ from the file"]),
    "another carrier": ([(1, "WN", 2, 11, -9, 1), *RESULTS[1:]], {}, ["results that differ from the file"]),
    "a row that is not in the file": (
        [*RESULTS, (9, "UA", 2, 11, -9, 1)],
        {},
        ["results that differ from the file"],
    ),
    "a flight that was worked twice": ([*RESULTS, RESULTS[0]], {}, ["results of one delivery twice"]),
    "a flight that was delivered again": ([*RESULTS, (*RESULTS[0][:5], 2)], {"held": 1}, []),
    "messages that did not come back": (RESULTS, {"held": 1}, ["delivered again after the kill"]),
    "a flight that was not sent": (RESULTS, {"sent": 3}, ["flights sent"]),
    "a message that is left": (RESULTS, {"left": (1, 0)}, ["messages left in the queue"]),
    "a dead letter": (RESULTS, {"left": (0, 1)}, ["dead letters"]),
}


@pytest.mark.parametrize(("results", "others", "wrong"), WRONG.values(), ids=WRONG)
def test_the_check_finds_whatever_is_wrong_and_nothing_else(check, results, others, wrong) -> None:
    given = {"sent": 4, "held": None, "left": (0, 0)} | others
    given["left"] = check.Left(*given["left"])
    lines = check.check(ROWS, [check.Result(*each, 0.0) for each in results], **given)
    assert [line.what for line in lines if not line.is_right] == wrong
