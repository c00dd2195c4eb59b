"""``shardq bench`` from the command line."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from shardq.bench import command
from shardq.bench.command import bench
from shardq.bench.load import TINY
from shardq.bench.report import Report


@pytest.fixture
def tiny(monkeypatch) -> None:
    monkeypatch.setattr(command, "QUICK", TINY)


def test_json_goes_to_stdout_and_progress_to_stderr(tiny) -> None:
    done = CliRunner().invoke(bench, ["--quick", "--json", "--only", "latency"])

    report = Report.decode(done.stdout.encode())
    assert done.exit_code == 0 and report.quick and report.store == "sqlite"
    assert {result.name for result in report.results} == {
        "latency within a process",
        "latency between processes",
        "latency at a fixed rate",
    }
    assert "round 1 of 1" in done.stderr


def test_a_table_otherwise(tiny, tmp_path) -> None:
    options = ["--quick", "--only", "latency", "--url", f"sqlite:///{tmp_path}/queue.db"]

    done = CliRunner().invoke(bench, options, env={"COLUMNS": "200"})

    assert done.exit_code == 0
    assert "latency between processes" in done.stdout and "p99.9" in done.stdout


def test_a_report_says_neither_host_nor_password(tiny, monkeypatch) -> None:
    monkeypatch.setattr(command, "run_cases", lambda *_: [])

    report = command.measure("mongodb://me:secret@somewhere/there", (), None, quick=True)

    assert report.store == "mongodb"
    assert b"secret" not in report.encode() and b"somewhere" not in report.encode()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--only", "magic"], "'magic' is not one of"),
        (["--rounds", "0"], "0 is not in the range"),
        (["--quick", "--url", "nowhere"], "nowhere"),
        (["--quick", "--url", "sqlite:///"], "names no file"),
        (["--fast"], "No such option"),
    ],
)
def test_a_bad_option_is_named(tiny, options, said) -> None:
    done = CliRunner().invoke(bench, options)

    assert done.exit_code == 2
    assert said in done.stderr
