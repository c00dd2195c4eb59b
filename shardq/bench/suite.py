"""Running many measurements so that they can be compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shardq.bench.case import Case
from shardq.bench.latency_cases import latency_cases
from shardq.bench.result import Result, Sample, summarize
from shardq.bench.scaling_cases import scaling_cases
from shardq.bench.size import Size
from shardq.bench.stage import Stage
from shardq.bench.throughput_cases import throughput_cases

__all__ = ["GROUPS", "cases_of", "run_cases"]

GROUPS = {"throughput": throughput_cases, "latency": latency_cases, "scaling": scaling_cases}


def cases_of(size: Size, groups: Sequence[str]) -> list[Case]:
    """The cases of some groups, of all without any."""
    return [case for group in groups or GROUPS for case in GROUPS[group](size)]


def run_cases(
    cases: Sequence[Case], stage: Stage, rounds: int, progress: Callable[[str], None] = lambda _: None
) -> list[Result]:
    """A result for each case, from interleaved rounds: what disturbs the machine for a while disturbs all alike.

    Raises BenchmarkFailed.
    """
    samples: list[list[Sample]] = [[] for _ in cases]
    for number in range(rounds):
        for case, taken in zip(cases, samples, strict=True):
            if number < case.rounds:
                progress(f"round {number + 1} of {rounds}: {case.name}")
                taken.append(case.measure(stage, case.load))
    return [
        summarize(case.name, case.unit, case.load, taken) for case, taken in zip(cases, samples, strict=True)
    ]
