"""The measurements of shardq's stores within a run of all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import shardq
from shardq.bench.load import Load
from shardq.bench.report import Report, this_machine
from shardq.bench.result import Sample, summarize
from shardq.bench.stage import Stage
from tools.bench import measuring
from tools.bench.database import Running
from tools.bench.field import FIELDS
from tools.bench.growth import Growth
from tools.bench.idling import idle_with_server
from tools.bench.measuring import measure_stores
from tools.bench.software import software
from tools.bench.starting import Servers
from tools.bench.usage import Usage

NOWHERE = Running("nothing://", None)


@pytest.fixture
def tiny_report() -> Report:
    """One result."""
    result = summarize("send bulk", "messages/s", Load(), [Sample(1.0)])
    return Report(machine=this_machine(), store="sqlite", quick=True, results=(result,))


def test_a_store_that_fails_is_left_out_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, tiny_report: Report
) -> None:
    monkeypatch.setattr(measuring, "measure", lambda url, *_, **__: _measured(url, tiny_report))
    monkeypatch.setattr(measuring, "measure_growth", lambda *_: Growth((), ("10 messages",)))
    servers = Servers((), {"SQLite": None, "Nothing": NOWHERE}, ())

    measured = measure_stores(FIELDS["all"], servers, quick=True, say=lambda _: None)

    assert {result.subject for result in measured.report.results} == {"SQLite"}
    assert measured.missing[0].startswith("the measurements of Nothing (URL scheme 'nothing' is unknown")
    assert measured.left_out == ("SQLite, 10 messages",)


def test_the_results_of_one_store_are_those_of_shardq(
    monkeypatch: pytest.MonkeyPatch, tiny_report: Report
) -> None:
    monkeypatch.setattr(measuring, "measure", lambda *_, **__: tiny_report)
    monkeypatch.setattr(measuring, "measure_growth", lambda *_: Growth((), ()))

    measured = measure_stores(
        FIELDS["sqlite"], Servers((), {"SQLite": None}, ()), quick=True, say=lambda _: None
    )

    assert {result.subject for result in measured.report.results} == {"shardq"}


def test_a_store_that_cannot_be_asked_is_named_without_its_version() -> None:
    assert software({"SQLite": None, "Nothing": NOWHERE.url}).endswith(", Nothing")


def _measured(url: str | None, report: Report) -> Report:
    """The report, after the store was opened."""
    if url is not None:
        shardq.connect(url).close()
    return report


def test_waiting_counts_the_processor_time_of_the_server(tmp_path: Path) -> None:
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        sample = idle_with_server(
            Stage(f"sqlite:///{tmp_path}/queue.db"), Usage((busy.pid,)), Load(processes=1, seconds=1.0)
        )
    finally:
        busy.kill()
        busy.wait()

    figures = {figure.name: figure.value for figure in sample.figures}
    assert figures["server"] > 0 and figures["server without them"] > 0
