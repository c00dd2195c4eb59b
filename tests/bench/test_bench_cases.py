"""Every measurement of shardq's own stores runs, and one that loses messages fails."""

from __future__ import annotations

import math

import pytest

import shardq
from tools.bench.stores.cases import cases_of, run_cases
from tools.bench.stores.load import TINY
from tools.bench.stores.processes import BenchmarkFailed, Job, run_together
from tools.bench.stores.stage import Stage
from tools.bench.stores.throughput import check_all_received


def test_every_measurement_gives_a_complete_result_and_leaves_no_queue(url) -> None:
    cases, said = cases_of(TINY, ()), []
    results = run_cases(cases, Stage(url), TINY.rounds, said.append)

    assert [(each.name, each.load) for each in results] == [(case.name, case.load) for case in cases]
    for result in results:
        assert 0 <= result.low <= result.median <= result.high < math.inf
        assert all(math.isfinite(figure.value) for figure in result.figures)
    assert said == [f"round 1 of 1: {case.name}" for case in cases]
    with shardq.connect(url) as client:
        assert client.queues() == ()


def test_lost_messages_and_processes_that_fail_fail_the_benchmark() -> None:
    with pytest.raises(BenchmarkFailed, match="2 messages were sent and 0 received"):
        check_all_received([], 2)
    with pytest.raises(BenchmarkFailed, match="ZeroDivisionError"):
        run_together([Job(_divide, (0,)), Job(_divide, (1,))])


def _divide(ready, by: int) -> float:
    ready_after = 1 / by
    ready()
    return ready_after
