"""``shardq list`` shows ages and changes, and ``shardq consumers list`` fits a screen."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

import shardq
from shardq.cli.main import main
from shardq.cli.printing import columns
from shardq.testing import ManualClock
from tests.terminal import in_terminal


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """The clock of the commands, which a pause between two counts moves."""
    clock = ManualClock(1_700_000_000_000_000)
    monkeypatch.setattr("shardq.base.clock.SystemClock", lambda: clock)
    monkeypatch.setattr("shardq.cli.commands.list_queues.time", SimpleNamespace(sleep=clock.advance))
    return clock


def test_counts_have_the_ages_of_messages(jobs, clock: ManualClock) -> None:
    jobs.ok("send", "jobs", "a", "b")
    jobs.ok("send", "jobs", "later", "--delay", "1h")
    clock.advance(90)
    header, row, *_ = (line.split() for line in jobs.ok("list", "--counts").stdout.splitlines())
    assert header == ["queue", "ready", "delayed", "in", "flight", "oldest", "late"]
    assert row == ["jobs", "2", "1", "0", "90", "s", "90", "s"]
    found = jobs.json("list", "--counts")["queues"]
    assert (found[0]["oldest_seconds"], found[0]["late_seconds"]) == (90.0, 90.0)
    assert "per_second" not in found[0]
    assert "oldest_seconds" not in found[1]


def test_an_interval_shows_changes_per_second(jobs, clock: ManualClock, monkeypatch) -> None:
    def send_meanwhile(seconds: float) -> None:
        clock.advance(seconds)
        with shardq.connect(jobs.url, clock=clock) as client:
            client.queue("jobs").producer().send_many([b"x"] * 8)

    monkeypatch.setattr("shardq.cli.commands.list_queues.time", SimpleNamespace(sleep=send_meanwhile))
    header, row, other = jobs.ok("list", "--interval", "4s").stdout.splitlines()
    assert header.split()[-1] == "change"
    assert (row.split()[-1], other.split()[-1]) == ("+2.0/s", "+0.0/s")
    (line, _) = jobs.json("list", "--interval", "4s")["queues"]
    assert line["per_second"] == {"ready": 2.0, "delayed": 0.0, "in_flight": 0.0, "processed": 0.0}


def test_watching_counts_until_ctrl_c(jobs, clock: ManualClock, monkeypatch) -> None:
    pauses = iter(range(3))

    def pause(seconds: float) -> None:
        if next(pauses, None) is None:
            raise KeyboardInterrupt
        clock.advance(seconds)

    monkeypatch.setattr("shardq.cli.commands.list_queues.time", SimpleNamespace(sleep=pause))
    result = jobs("list", "--watch", "--json")
    assert result.exit_code == 130
    found = [json.loads(line)["queues"][0] for line in result.stdout.splitlines()]
    assert ["per_second" in line for line in found] == [False, True, True, True]


def test_a_wrong_interval_is_refused(jobs) -> None:
    assert jobs("list", "--interval", "-1").exit_code == 2


NAMES = ["web-1", "ip-172-31-22-11.eu-west-1.compute.internal-4711-9f86d081"]


@pytest.mark.parametrize("most", [80, 60])
@pytest.mark.parametrize("name", NAMES)
def test_consumers_fit_a_screen(jobs, name: str, most: int) -> None:
    queues = [f"orders-{number}" for number in range(12)]
    with shardq.connect(jobs.url) as client:
        for queue in queues:
            client.create_queue(queue)
        with client.consumer(queues, name=name) as consumer:
            consumer.receive(1)
            found = CliRunner(env={"COLUMNS": str(most)}).invoke(
                main, ["--url", jobs.url, "consumers", "list"]
            )
    lines = found.stdout.splitlines()
    assert max(map(len, lines)) <= most
    assert name in found.stdout
    assert [word for word in found.stdout.split() if word.startswith("orders-")] == sorted(queues)
    assert lines[0].split()[0] == "consumer"


def test_consumers_show_host_process_and_start_on_request(jobs) -> None:
    with shardq.connect(jobs.url) as client, client.queue("jobs").consumer(name="web-1") as consumer:
        consumer.receive(1)
        assert "pid" not in jobs.ok("consumers", "list").stdout
        assert jobs.ok("consumers", "list", "--long").stdout.split()[:3] == ["consumer", "host", "pid"]


LONG = "a-queue-with-a-name/of-forty-five-characters"


def test_checks_fit_a_terminal_whatever_the_names_of_queues_are(
    jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.ok("create", LONG)
    jobs.ok("pause", LONG)
    monkeypatch.setenv("COLUMNS", "80")
    seen, exit_code = in_terminal(["doctor"], jobs.url)
    lines = seen.splitlines()
    assert exit_code == 1
    assert [line for line in lines if len(line) > 80 and "/queue.db" not in line] == []  # no word is cut
    assert lines[lines.index(LONG) + 1].split() == ["WRONG", "delivery", "paused", "->", "shardq", "resume"]
    assert lines[lines.index(LONG) + 2].split() == [LONG]
    (wrong,) = [line for line in jobs("doctor").stdout.splitlines() if f"shardq resume {LONG}" in line]
    assert wrong.split() == ["WRONG", LONG, "delivery", "paused", "->", "shardq", "resume", LONG]


def test_a_message_that_is_wider_than_the_terminal_has_a_line_for_its_id(
    jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    (identity,) = jobs.ok("send", "jobs", "tea").stdout.split()
    monkeypatch.setenv("COLUMNS", "80")
    lines = in_terminal(["peek", "jobs"], jobs.url)[0].splitlines()
    assert (lines[0], lines[1].split()[0], lines[1][:3], lines[1].split()[-1]) == (
        identity,
        "ready",
        "  r",
        "tea",
    )
    monkeypatch.setenv("COLUMNS", "200")
    (line,) = in_terminal(["peek", "jobs"], jobs.url)[0].splitlines()
    assert jobs.ok("peek", "jobs").stdout.splitlines() == [line]


def test_columns_without_a_limit_are_one_line_each() -> None:
    rows = [("queue", "ready"), ("jobs", 12_000), ("x", 3)]
    assert list(columns(rows)) == ["queue  ready", "jobs   12,000", "x           3"]
    assert list(columns([])) == []


def test_a_long_first_column_has_lines_of_its_own() -> None:
    rows = [("name", "seen", "queues"), ("x" * 30, "now", "a-long-name b c")]
    assert list(columns(rows, most=24)) == [
        "name", "  seen  queues", "x" * 30, "  now   a-long-name b c",
    ]  # fmt: skip
    assert list(columns(rows, most=20)) == [
        "name", "  seen  queues", "x" * 30, "  now   a-long-name", "        b c",
    ]  # fmt: skip
