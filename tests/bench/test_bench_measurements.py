"""Every measurement runs and gives a complete result. What the figures are is nobody's business here."""

from __future__ import annotations

import math

import pytest

from shardq.bench.cases import Case, cases_of, run_cases
from shardq.bench.latency import latencies
from shardq.bench.load import FULL, QUICK, TINY, Load, bodies
from shardq.bench.processes import BenchmarkFailed, Job, run_alone, run_together
from shardq.bench.result import Sample, summarize
from shardq.bench.stage import Stage
from shardq.bench.throughput import check_all_received
from shardq.bench.wording import figure, load_in_words

CASES = cases_of(TINY, ())


@pytest.mark.parametrize("case", CASES, ids=[f"{number}-{case.name}" for number, case in enumerate(CASES)])
def test_a_measurement_gives_a_complete_result(case: Case) -> None:
    (result,) = run_cases([case], Stage(), 1)

    assert (result.name, result.unit, result.load) == (case.name, case.unit, case.load)
    assert result.median >= 0 and math.isfinite(result.median)
    assert result.low <= result.median <= result.high
    assert all(math.isfinite(item.value) for item in result.figures)


def test_a_measurement_in_a_given_store_leaves_no_queue_behind(tmp_path) -> None:
    import shardq

    url = f"sqlite:///{tmp_path}/queue.db"
    run_cases(CASES[:1], Stage(url), 1)

    with shardq.connect(url) as client:
        assert client.queues() == ()


def test_several_processes_share_the_work() -> None:
    case = next(case for case in cases_of(FULL, ("throughput",)) if case.load.processes == 2)
    load = Load(messages=40, processes=2)

    assert case.measure(Stage(), load).value > 0


def test_rounds_are_interleaved_and_long_measurements_have_fewer() -> None:
    seen: list[int] = []

    def measure(_: Stage, load: Load) -> Sample:
        seen.append(load.messages)
        return Sample(float(len(seen)))

    def case(number: int, rounds: int) -> Case:
        return Case(name="n", unit="u", measure=measure, load=Load(messages=number), rounds=rounds)

    results = run_cases([case(1, 100), case(2, 1)], Stage(), 3)

    assert seen == [1, 2, 1, 1]
    assert [result.rounds for result in results] == [(1.0, 3.0, 4.0), (2.0,)]


def test_a_result_has_the_median_and_the_spread() -> None:
    result = summarize("n", "u", Load(), [Sample(3.0), Sample(1.0), Sample(7.0)])

    assert (result.median, result.low, result.high, result.rounds) == (3.0, 1.0, 7.0, (3.0, 1.0, 7.0))


def test_percentiles_are_measured_values() -> None:
    sample = latencies([number / 1_000 for number in range(1, 101)])

    assert [(item.name, round(item.value)) for item in sample.figures] == [
        ("p50", 50),
        ("p90", 90),
        ("p99", 99),
        ("p99.9", 100),
        ("p100", 100),
    ]


def test_bodies_have_their_size_and_are_the_same_in_every_run() -> None:
    first = list(bodies(100, 512))

    assert first == list(bodies(100, 512))
    assert {len(body) for body in first} == {512} and len(first) == 100


def test_a_failure_in_a_process_is_told() -> None:
    with pytest.raises(BenchmarkFailed, match="ZeroDivisionError"):
        run_together([Job(_divide, (0,)), Job(_divide, (1,))])


def test_a_process_gives_its_answer() -> None:
    assert run_alone(_divide, 4) == 0.25


def test_lost_messages_are_noticed() -> None:
    with pytest.raises(BenchmarkFailed, match="2 messages were sent and 0 received"):
        check_all_received([], 2)


def test_every_load_has_words_of_its_own() -> None:
    for size in (FULL, QUICK):
        said = [(case.name, load_in_words(case.name, case.load)) for case in cases_of(size, ())]
        assert len(set(said)) == len(said)


def test_figures_are_short() -> None:
    assert [figure(value) for value in (123_456.7, 1_234.5, 123.4, 12.345, 0.12345)] == [
        "123,457",
        "1,234",
        "123",
        "12.3",
        "0.123",
    ]


def _divide(ready, by: int) -> float:
    ready_after = 1 / by
    ready()
    return ready_after
