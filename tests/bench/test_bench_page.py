"""docs/benchmarks*.md are what the tool makes of the kept figures."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from shardq.bench.load import Load
from shardq.bench.report import Report, this_machine
from shardq.bench.result import Figure, Result, Sample, summarize
from shardq.bench.wording import FIXED_RATE, LOADED
from tools.bench.__main__ import run
from tools.bench.asked import NEEDED
from tools.bench.comparison import Comparison, Promise
from tools.bench.faster_section import faster_section
from tools.bench.field import FIELDS, Field
from tools.bench.load_latency import KEEPS_UP
from tools.bench.page import page
from tools.bench.plots import plots_of
from tools.bench.rounds import BULK_SEND, DISK, PROCESSOR, SINGLE_SEND
from tools.bench.singles import POP, SEND_THREADS
from tools.bench.targets import targets

DOCS = Path(__file__).parents[2] / "docs"
FIELD = FIELDS["sqlite"]
KEPT = DOCS / FIELD.name / "results.json"
PAGES = [field for field in FIELDS.values() if (DOCS / f"{field.name}.md").exists()]


@pytest.fixture
def kept() -> Comparison:
    return Comparison.decode(KEPT.read_bytes())


@pytest.mark.parametrize("field", PAGES, ids=[field.store for field in PAGES])
def test_a_page_is_made_from_the_kept_figures(field: Field) -> None:
    kept = Comparison.decode((DOCS / field.name / "results.json").read_bytes())

    assert (DOCS / f"{field.name}.md").read_text() == page(kept, field.title, field.name)


@pytest.mark.parametrize("field", PAGES, ids=[field.store for field in PAGES])
def test_a_page_shows_every_peer_and_every_plot(field: Field) -> None:
    kept = Comparison.decode((DOCS / field.name / "results.json").read_bytes())
    text = page(kept, field.title, field.name)

    assert all(f"| {promise.name} |" in text for promise in kept.promises)
    shown = re.findall(rf"\({field.name}/([\w-]+)\.png\)", text)
    assert sorted(shown) == sorted(plots_of(kept))
    assert all((DOCS / field.name / f"{name}.png").exists() for name in shown)


def test_a_target_is_met_only_by_the_figures(kept) -> None:
    lines = {(target.store, target.what): target for target in targets(kept)}

    ratio = kept.ratio("RabbitMQ, confirms", "bulk send")
    assert ratio is None or lines["SQLite", "bulk send / RabbitMQ, confirms"].met is (ratio >= 10)


def test_what_is_asked_is_compared_with_a_peer_or_with_another_kind_of_the_same_queue() -> None:
    load = Load(rate=100.0)
    ours, driver = "shardq (MongoDB)", "pymongo alone"
    marks = (Figure("p50", 3.0), Figure("p99", 20.0))
    comparison = _comparison(
        (
            summarize(SINGLE_SEND, "messages/s", load, [Sample(900.0)], subject=ours),
            summarize(SINGLE_SEND, "messages/s", load, [Sample(1_000.0)], subject=driver),
            summarize(SEND_THREADS, "messages/s", load, [Sample(9_000.0)], subject=ours),
            summarize(PROCESSOR, "s", load, [Sample(9.0)], subject=ours),
            summarize(PROCESSOR, "s", load, [Sample(5.0)], subject=driver),
            summarize(FIXED_RATE, "ms", load, [Sample(3.0, marks)], subject=ours),
        )
    )

    lines = {target.what: (target.measured, target.met) for target in targets(comparison)}

    assert lines == {
        "single sends / pymongo alone": ("0.90x", False),
        "single sends, 16 threads / single sends": ("10x", True),
        "processor time / pymongo alone": ("1.80x", True),
        "latency between processes, p50": ("3 ms", True),
        "latency between processes, p99": ("20 ms", False),
    }
    assert "| MongoDB | single sends / pymongo alone | >= 0.95x | 0.90x | 900 and 1,000/s | **no** |" in page(
        comparison, "Title", "name"
    )


def test_where_another_is_faster_the_page_says_why() -> None:
    marks = (Figure("p50", 5.0),)
    results = [
        *(summarize(POP, "messages/s", Load(), [Sample(20.0)], subject=name) for name in ("shardq", "them")),
        summarize(BULK_SEND, "messages/s", Load(), [Sample(20.0)], subject="shardq"),
        summarize(BULK_SEND, "messages/s", Load(), [Sample(50.0)], subject="them"),
        summarize(FIXED_RATE, "ms", Load(), [Sample(5.0, marks)], subject="shardq"),
        summarize(FIXED_RATE, "ms", Load(), [Sample(1.0, marks)], subject="them"),
    ]
    comparison = msgspec.structs.replace(
        _comparison(tuple(results)),
        promises=(Promise("shardq", "so", "so"), Promise("them", "so", "so", wins="no lease")),
    )

    assert faster_section(comparison).splitlines()[-2:] == [
        "| bulk send | them | no lease | 50/s | 20/s | 2.50x |",
        "| latency at a fixed rate | them | no lease | 1 ms | 5 ms | 5.00x |",
    ]


def test_each_peer_that_is_asked_for_is_in_a_field() -> None:
    promised = {kind for group in FIELDS["all"].groups for kind in group.peers}

    assert promised >= NEEDED
    for name in ("sqlite", "cassandra", "mongodb"):
        assert {module for group in FIELDS[name].asked().groups for module in group.peers} <= NEEDED


def test_latency_against_load_is_shown_up_to_where_a_queue_keeps_up() -> None:
    def result(rate: float, keeps_up: float) -> Result:
        marks = (Figure("p50", 1.5), Figure("p99", 7.0), Figure(KEEPS_UP, keeps_up))
        load = Load(rate=rate, seconds=2.0, threads=16)
        return summarize(LOADED, "ms", load, [Sample(1.5, marks)], subject="us")

    comparison = _comparison((result(125.0, 1.0), result(250.0, 0.0)))

    text = page(comparison, "Benchmarks", "benchmarks")
    assert "| us | 1.5 / 7 | **no** |" in text
    assert "(benchmarks/under-load.png)" in text and "under-load" in plots_of(comparison)


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


def test_latencies_of_queues_stand_beside_each_other_with_what_wakes_their_receivers() -> None:
    marks = tuple(Figure(name, 1.5) for name in ("p50", "p90", "p99", "p99.9", "p100"))
    load = Load(rate=100.0, seconds=2.0)
    result = summarize(FIXED_RATE, "ms", load, [Sample(1.5, marks)], subject="us")
    comparison = _comparison((result,))

    text = page(comparison, "Benchmarks", "benchmarks")
    assert "100 messages/s for 2 s, 512 B" in text and "200 messages in each round" in text
    assert "| us | signals | **1.5** | 1.5 | 1.5 | 1.5 | 1.5 |" in text and "| them | looks" not in text
    assert "(benchmarks/waiting.png)" in text and "waiting" in plots_of(comparison)


@pytest.mark.parametrize("store", FIELDS)
def test_durability_and_costs_stand_beside_the_throughput(store: str) -> None:
    results = [
        summarize(BULK_SEND, "messages/s", Load(), [Sample(1000.0)], subject="us"),
        summarize(PROCESSOR, "s", Load(), [Sample(7.0, (Figure("this process", 3.0),))], subject="us"),
        summarize(DISK, "MB", Load(), [Sample(600.0)], subject="us"),
    ]

    text = page(msgspec.structs.replace(_comparison(tuple(results)), store=store), "Title", "name")

    assert "| us | fsync | **1,000** | - | - | - | **7** | **600** |" in text


def test_missing_peers_are_named() -> None:
    comparison = msgspec.structs.replace(_comparison(()), missing=("redis (it is not installed)",))

    assert "Left out: redis (it is not installed)." in page(comparison, "Title", "name")


def test_the_tool_writes_page_and_plots_again(tmp_path) -> None:
    (tmp_path / FIELD.name).mkdir()
    (tmp_path / FIELD.name / "results.json").write_bytes(KEPT.read_bytes())

    done = CliRunner().invoke(run, ["--store", FIELD.store, "--docs-only", "--output", str(tmp_path)])

    assert done.exit_code == 0, done.output
    assert (tmp_path / f"{FIELD.name}.md").read_text() == (DOCS / f"{FIELD.name}.md").read_text()
    assert all((tmp_path / FIELD.name / f"{name}.png").stat().st_size > 10_000 for name in _plots())


def test_without_kept_figures_there_is_nothing_to_write(tmp_path) -> None:
    done = CliRunner().invoke(run, ["--docs-only", "--output", str(tmp_path)])

    assert done.exit_code == 2
    assert "run without --docs-only first" in done.output


def test_an_unknown_peer_is_named() -> None:
    done = CliRunner().invoke(run, ["--store", "sqlite", "--only", "kafka"])

    assert done.exit_code == 2
    assert "no such peers in the field sqlite: kafka" in done.output


def _plots() -> list[str]:
    return list(plots_of(Comparison.decode(KEPT.read_bytes())))


def _comparison(results) -> Comparison:
    report = Report(machine=this_machine(), store="sqlite", quick=True, results=())
    promises = (Promise("us", "at once", "so", "fsync", "signals"), Promise("them", "later", "so"))
    return Comparison(report=report, promises=promises, missing=(), peers=results)
