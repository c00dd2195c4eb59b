"""How costs grow: every point is measured, and what would take too long is left out and told."""

from __future__ import annotations

import msgspec
import pytest

from shardq.bench.load import Load
from shardq.bench.report import Report, this_machine
from shardq.bench.result import Figure, Sample, summarize
from shardq.bench.stage import Stage
from tools.bench.axis import Axis, axes
from tools.bench.comparison import Comparison, Promise
from tools.bench.growing import CLAIM, RECEIVE, SEND, counted, grow
from tools.bench.growth import Growth, measure_growth
from tools.bench.page import page
from tools.bench.plots import draw_all, plots_of
from tools.bench.rounds import KINDS

MESSAGES = Axis(
    name="messages",
    value=lambda load: load.messages,
    loads=tuple(Load(messages=10**power, claims=1) for power in (2, 3, 4)),
    seconds=60,
)


def instantly(_: Stage, load: Load) -> Sample:
    """A store in which a message costs nothing to speak of."""
    figures = (Figure(SEND, 2e6), Figure(RECEIVE, 2e6), Figure(CLAIM, float(load.batch)))
    return Sample(1.0, figures)


@pytest.mark.parametrize("axis", axes(quick=True), ids=lambda axis: axis.name)
def test_a_point_is_measured_by_its_processes_and_shards(axis: Axis) -> None:
    load = msgspec.structs.replace(axis.loads[1], messages=800, batch=100, claims=2)

    sample = grow(Stage(), load)

    figures = {figure.name: figure.value for figure in sample.figures}
    assert sample.value == pytest.approx(1e6 / figures[SEND] + 1e6 / figures[RECEIVE])
    assert figures[CLAIM] > 0


@pytest.mark.parametrize("quick", [True, False])
def test_the_loads_of_an_axis_differ_in_what_grows(quick: bool) -> None:
    for axis in axes(quick=quick):
        values = [axis.value(load) for load in axis.loads]
        assert values == sorted(set(values)) and len(values) >= 3
        assert all(load.messages >= 4 * load.batch for load in axis.loads)
        assert all(load.messages % load.processes == 0 for load in axis.loads)


def test_the_full_growth_goes_as_far_as_it_says() -> None:
    ends = {axis.name: (axis.value(axis.loads[0]), axis.value(axis.loads[-1])) for axis in axes(quick=False)}

    assert ends == {
        "messages": (10_000, 10_000_000),
        "shards": (1, 1_000),
        "producers and consumers": (1, 8),
        "bytes of a body": (100, 1_000_000),
    }
    assert sum(axis.seconds for axis in axes(quick=False)) <= 1_080
    assert sum(axis.seconds for axis in axes(quick=True)) <= 80


def test_each_load_is_measured_in_several_rounds_where_there_is_time() -> None:
    grown = measure_growth(Stage(), [MESSAGES], instantly, lambda _: None)

    assert [result.load.messages for result in grown.results] == [100, 1_000, 10_000]
    assert all(len(result.rounds) == 3 for result in grown.results) and not grown.left_out


def test_a_load_that_would_take_too_long_is_left_out_and_told() -> None:
    now = 0.0

    def slowly(stage: Stage, load: Load) -> Sample:
        nonlocal now
        now += 2 + load.messages / 50
        return msgspec.structs.replace(instantly(stage, load), value=20_000.0)

    grown = measure_growth(Stage(), [MESSAGES], slowly, lambda _: None, clock=lambda: now)

    assert [(result.load.messages, len(result.rounds)) for result in grown.results] == [(100, 3), (1_000, 2)]
    assert grown.left_out == ("10,000 messages (about 202 s, 34 of 60 s were left)",)


def test_the_page_shows_cost_against_size_for_each_store(tmp_path) -> None:
    grown = measure_growth(Stage(), axes(quick=True), instantly, lambda _: None)
    comparison = _comparison(grown, "SQLite", "MongoDB")

    text = page(comparison, "Title", "name")

    for axis in axes(quick=True):
        assert f"### By {axis.name}" in text
        for store in ("SQLite", "MongoDB"):
            assert all(f"| {store} | {axis.value(load):,} |" in text for load in axis.loads)
    assert "Left out for the time: MongoDB, 10 messages (about 99 s)." in text
    draw_all(comparison, tmp_path)
    assert all((tmp_path / f"{name}.png").stat().st_size > 10_000 for name in plots_of(comparison))
    assert all(f"(name/{name}.png)" in text for name in plots_of(comparison))


def _comparison(grown: Growth, *stores: str) -> Comparison:
    results = tuple(
        msgspec.structs.replace(result, subject=store) for store in stores for result in grown.results
    )
    return Comparison(
        report=Report(machine=this_machine(), store="all", quick=True, results=results),
        store="all",
        promises=(Promise("us", "at once", "so", "fsync"),),
        missing=(),
        peers=tuple(summarize(kind, "messages/s", Load(), [Sample(9.0)], subject="us") for kind in KINDS),
        left_out=("MongoDB, 10 messages (about 99 s)",),
    )


def test_what_the_server_counts_meanwhile_is_among_the_figures() -> None:
    so_far = iter(({"write conflicts": 5}, {"write conflicts": 7}))

    sample = counted(instantly, lambda: next(so_far))(Stage(), Load())

    assert sample.figures[-1] == Figure("write conflicts", 2)
