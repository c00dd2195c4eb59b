"""docs/benchmarks.md is what the tool makes of the kept figures."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner

from shardq.bench.load import Load
from shardq.bench.machine import this_machine
from shardq.bench.report import Report
from shardq.bench.result import Sample, summarize
from tools.bench.__main__ import run
from tools.bench.comparison import Comparison, Promise
from tools.bench.page import page
from tools.bench.peer import PeerMissing
from tools.bench.peers.shardq_sqlite import ShardqSqlite
from tools.bench.plots import PLOTS
from tools.bench.rounds import KINDS, Rounds, open_all, run_rounds
from tools.bench.targets import targets

DOCS = Path(__file__).parents[2] / "docs"
KEPT = DOCS / "benchmarks" / "results.json"


@pytest.fixture
def kept() -> Comparison:
    return Comparison.decode(KEPT.read_bytes())


def test_the_page_is_made_from_the_kept_figures(kept) -> None:
    assert (DOCS / "benchmarks.md").read_text() == page(kept)


def test_the_page_shows_every_peer_and_every_plot(kept) -> None:
    text = page(kept)

    assert all(f"| {promise.name} |" in text for promise in kept.promises)
    shown = re.findall(r"\(benchmarks/(\w+)\.png\)", text)
    assert sorted(shown) == sorted(PLOTS)
    assert all((DOCS / "benchmarks" / f"{name}.png").exists() for name in PLOTS)


def test_a_target_is_met_only_by_the_figures(kept) -> None:
    lines = {target.what: target for target in targets(kept)}

    ratio = kept.ratio("RabbitMQ, confirms", "bulk send")
    assert ratio is None or lines["bulk send / RabbitMQ, confirms"].met is (ratio >= 10)


def test_a_ratio_compares_within_rounds() -> None:
    ours = summarize(
        "bulk send", "messages/s", Load(), [Sample(10.0), Sample(100.0), Sample(30.0)], subject="us"
    )
    them = summarize(
        "bulk send", "messages/s", Load(), [Sample(5.0), Sample(10.0), Sample(10.0)], subject="them"
    )
    comparison = _comparison((ours, them))

    assert comparison.ratio("them", "bulk send") == 3.0
    assert comparison.ratio("nobody", "bulk send") is None


def test_missing_peers_are_named(tmp_path) -> None:
    with ExitStack() as stack:
        peers, missing = open_all([PeerMissing("redis-server is not installed")], tmp_path, stack)

    assert not peers
    text = page(Comparison(**{**_fields(_comparison(())), "missing": tuple(missing)}))
    assert "Left out: redis-server is not installed." in text


def test_the_comparison_runs_in_rounds(tmp_path) -> None:
    with ExitStack() as stack:
        peers, _ = open_all([ShardqSqlite()], tmp_path, stack)
        results = run_rounds(peers, Rounds(rounds=2, messages=40, singles=4), say=lambda _: None)

    assert [result.name for result in results] == list(KINDS)
    assert all(len(result.rounds) == 2 and result.low > 0 for result in results)


def test_the_tool_writes_page_and_plots_again(tmp_path) -> None:
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "results.json").write_bytes(KEPT.read_bytes())

    done = CliRunner().invoke(run, ["--docs-only", "--output", str(tmp_path)])

    assert done.exit_code == 0, done.output
    assert (tmp_path / "benchmarks.md").read_text() == (DOCS / "benchmarks.md").read_text()
    assert all((tmp_path / "benchmarks" / f"{name}.png").stat().st_size > 10_000 for name in PLOTS)


def test_without_kept_figures_there_is_nothing_to_write(tmp_path) -> None:
    done = CliRunner().invoke(run, ["--docs-only", "--output", str(tmp_path)])

    assert done.exit_code == 2
    assert "run without --docs-only first" in done.output


def _comparison(results) -> Comparison:
    report = Report(machine=this_machine(), store="sqlite", quick=True, results=())
    promises = (Promise("us", "at once", "so"), Promise("them", "later", "so"))
    return Comparison(report=report, promises=promises, missing=(), peers=results)


def _fields(comparison: Comparison) -> dict:
    return {name: getattr(comparison, name) for name in comparison.__struct_fields__}
