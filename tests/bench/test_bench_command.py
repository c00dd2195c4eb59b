"""``shardq bench``: every measurement runs, and one that loses messages fails."""

from __future__ import annotations

import math

import pytest
from click.testing import CliRunner

import shardq
from shardq.bench import command
from shardq.bench.cases import cases_of
from shardq.bench.command import bench
from shardq.bench.load import TINY
from shardq.bench.processes import BenchmarkFailed, Job, run_together
from shardq.bench.report import Report
from shardq.bench.throughput import check_all_received


@pytest.fixture
def tiny(monkeypatch) -> None:
    monkeypatch.setattr(command, "QUICK", TINY)


def test_every_measurement_gives_a_complete_result_and_leaves_no_queue(tiny, url) -> None:
    done = CliRunner().invoke(bench, ["--quick", "--json", "--url", url])

    assert done.exit_code == 0, done.stderr
    report = Report.decode(done.stdout.encode())
    assert [(each.name, each.load) for each in report.results] == [
        (case.name, case.load) for case in cases_of(TINY, ())
    ]
    for result in report.results:
        assert 0 <= result.low <= result.median <= result.high < math.inf
        assert all(math.isfinite(figure.value) for figure in result.figures)
    assert "round 1 of 1" in done.stderr
    with shardq.connect(url) as client:
        assert client.queues() == ()


def test_a_report_names_neither_host_nor_password(tiny, monkeypatch) -> None:
    monkeypatch.setattr(command, "run_cases", lambda *_: [])
    report = command.measure("mongodb://me:secret@somewhere/there", (), None, quick=True)
    assert report.store == "mongodb"
    assert b"secret" not in report.encode() and b"somewhere" not in report.encode()


@pytest.mark.parametrize(
    ("options", "said"),
    [(["--only", "magic"], "'magic' is not one of"), (["--quick", "--url", "nowhere"], "nowhere")],
)
def test_a_bad_option_is_named(tiny, options, said) -> None:
    done = CliRunner().invoke(bench, options)
    assert done.exit_code == 2
    assert said in done.stderr


def test_lost_messages_and_processes_that_fail_fail_the_benchmark() -> None:
    with pytest.raises(BenchmarkFailed, match="2 messages were sent and 0 received"):
        check_all_received([], 2)
    with pytest.raises(BenchmarkFailed, match="ZeroDivisionError"):
        run_together([Job(_divide, (0,)), Job(_divide, (1,))])


def _divide(ready, by: int) -> float:
    ready_after = 1 / by
    ready()
    return ready_after
