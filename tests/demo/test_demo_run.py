"""The whole command on a small data set."""

import multiprocessing
import sys

from click.testing import CliRunner

import shardq
from shardq.cli.main import main
from tests.demo.conftest import FLIGHTS

PLOTS = ["latency.png", "shards.png", "throughput.png"]


def test_a_killed_worker_loses_no_flight(demo, flights_csv):
    summary = demo.summary("--data", flights_csv)

    assert summary["good"]
    assert summary["messages"] == FLIGHTS
    held = summary["held_when_killed"]
    assert held > 0
    assert summary["redelivered"] >= held
    assert summary["seen_twice"]["killed"] == held // 2
    assert summary["seen_twice"]["unexplained"] == 0
    assert summary["back_at"] >= summary["killed_at"] + 0.5
    assert multiprocessing.active_children() == []


def test_plots_are_all_that_is_left(demo, flights_csv):
    summary = demo.summary("--data", flights_csv, "--messages", 500)

    assert demo.left() == PLOTS
    assert all((demo.output / name).read_bytes().startswith(b"\x89PNG") for name in PLOTS)
    assert summary["plots"] == [
        str(demo.output / name) for name in ("throughput.png", "latency.png", "shards.png")
    ]


def test_without_a_kill_nothing_is_delivered_twice(demo, flights_csv):
    summary = demo.summary("--data", flights_csv, "--no-kill", "--visibility-timeout", 30)

    assert summary["killed_worker"] is None
    assert summary["redelivered"] == 0
    assert summary["seen_twice"] == {"killed": 0, "lease_lost": 0, "unexplained": 0}


def test_one_flight_and_one_worker_are_enough_for_a_kill(demo, flights_csv):
    summary = demo.summary("--data", flights_csv, "--messages", 1, "--workers", 1, "--producers", 3)

    assert (summary["held_when_killed"], summary["redelivered"]) == (1, 1)


def test_the_report_tells_what_happened_in_plain_words(demo, flights_csv):
    result = demo.run("--data", flights_csv, "--messages", 1_000)

    assert result.exit_code == 0
    assert "was killed (SIGKILL) while it held 50 messages: 25 worked, none acked" in result.stderr
    assert "1,000 (" in result.stderr  # plain lines of progress: it is no terminal
    assert "\x1b" not in result.output
    assert result.stdout.count("✓") == 9 + 5 + 1
    assert "✗" not in result.stdout


def test_a_given_store_keeps_nothing_of_the_run(demo, flights_csv, tmp_path):
    url = f"sqlite:///{tmp_path / 'mine.db'}"
    demo.summary("--data", flights_csv, "--messages", 200, "--no-kill", "--url", url)

    with shardq.connect(url) as client:
        assert client.queues() == ()


def test_the_store_may_be_named_before_the_command(demo, flights_csv, tmp_path):
    store = tmp_path / "mine.db"
    command = ["--url", f"sqlite:///{store}", "demo", "--output", str(demo.output), "--no-kill"]
    result = CliRunner().invoke(main, [*command, "--data", str(flights_csv), "--messages", "200"])

    assert result.exit_code == 0, result.stderr
    assert store.exists()


def test_keep_leaves_the_queue_and_the_records(demo, flights_csv, tmp_path):
    url = f"sqlite:///{tmp_path / 'mine.db'}"
    summary = demo.summary("--data", flights_csv, "--messages", 200, "--no-kill", "--url", url, "--keep")

    queue = summary["queue"]
    with shardq.connect(url) as client:
        assert client.queues() == (queue, f"{queue}.dead")
    assert list((demo.output / queue).glob("results-*.jsonl"))


def test_without_matplotlib_it_says_how_to_install_it_and_runs(demo, flights_csv, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("shardq.demo.plots")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = demo.run("--data", flights_csv, "--messages", 200, "--no-kill")

    assert result.exit_code == 0
    assert "pip install 'shardq[demo]'" in result.stderr
    assert demo.left() == []
