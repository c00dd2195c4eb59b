"""The whole command on a small data set of the same columns as the real one."""

import csv
import json
import multiprocessing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import shardq
from shardq.cli.main import main
from shardq.demo.flight import COLUMNS

CARRIERS = ("UA", "DL", "9E", "B6", "OO")
ROW = {
    "year": 2013,
    "dep_time": 517,
    "sched_dep_time": 515,
    "arr_time": 830,
    "sched_arr_time": 819,
    "tailnum": "N14228",
    "origin": "EWR",
    "dest": "IAH",
    "air_time": 227,
    "distance": 1400,
    "hour": 5,
    "minute": 15,
    "time_hour": "2013-01-01T10:00:00Z",
}
NEVER_LEFT = dict.fromkeys(("dep_time", "dep_delay", "tailnum", "arr_time", "arr_delay", "air_time"), "NA")
NEVER_ARRIVED = dict.fromkeys(("arr_time", "arr_delay", "air_time"), "NA")


def flight(row: int) -> dict[str, object]:
    """A flight of its own for every row: every 11th never left, every 13th never arrived."""
    own = {
        "month": row % 12 + 1,
        "day": row % 28 + 1,
        "dep_delay": row % 97 - 10,
        "arr_delay": row % 89 - 20,
        "carrier": CARRIERS[row % len(CARRIERS)],
        "flight": row,
    }
    return ROW | own | (NEVER_ARRIVED if row % 13 == 0 else {}) | (NEVER_LEFT if row % 11 == 0 else {})


@pytest.fixture
def flights_csv(tmp_path: Path) -> Path:
    path = tmp_path / "flights.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(flight(row) for row in range(1, 1_001))
    return path


def demo(folder: Path, *options: object) -> Result:
    command = ["demo", "--output", str(folder / "out"), "--batch", "50", "--visibility-timeout", "1"]
    return CliRunner().invoke(main, [*command, *map(str, options)])


def test_a_killed_worker_loses_no_flight_and_leaves_only_plots(flights_csv, url, tmp_path) -> None:
    done = demo(tmp_path, "--data", flights_csv, "--url", url, "--json")

    assert done.exit_code == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["good"] and summary["messages"] == 1_000
    held = summary["held_when_killed"]
    assert 0 < held <= summary["redelivered"]
    assert summary["seen_twice"]["killed"] == held // 2
    assert summary["seen_twice"]["unexplained"] == 0
    assert summary["back_at"] >= summary["killed_at"] + 0.5
    assert "was killed (SIGKILL) while it held 50 messages: 25 worked, none acked" in done.stderr
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "latency.png",
        "shards.png",
        "throughput.png",
    ]
    assert multiprocessing.active_children() == []
    with shardq.connect(url) as client:
        assert client.queues() == ()


def test_a_run_that_is_off_exits_with_1_and_keeps_its_records(flights_csv, tmp_path, monkeypatch) -> None:
    def without_the_first(folder):
        found = real(folder)
        found.workers[0].results[:1] = []
        return found

    real = __import__("shardq.demo.job", fromlist=["read_harvest"]).read_harvest
    monkeypatch.setattr("shardq.demo.job.read_harvest", without_the_first)
    done = demo(tmp_path, "--data", flights_csv, "--messages", 500, "--no-kill", "--workers", 1)

    assert done.exit_code == 1
    assert "✗  flights processed" in done.stdout
    assert "something is off" in done.stdout
    assert list((tmp_path / "out").glob("flights-*"))


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--data", "nowhere.csv"], 2, "nowhere.csv"),
        (["--data", "flights.csv", "--url", "paper://drawer"], 2, "paper"),
        (["--data", "flights.csv", "--url", "sqlite:////no/such/queue.db"], 4, "no/such"),
        (["--data", "other.csv"], 1, "does not have the columns of flights.csv"),
    ],
)
def test_a_failure_is_one_line_and_an_exit_code(
    flights_csv, tmp_path, monkeypatch, options, code, said
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("other.csv").write_text("a,b\n1,2\n")
    done = demo(tmp_path, *options)
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("shardq: ")]
    assert (done.exit_code, said in line) == (code, True), line
    assert "Traceback" not in done.output
