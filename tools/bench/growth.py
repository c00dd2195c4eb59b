"""How the cost of a message grows with the number of messages, shards, processes, and with their size."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence

import msgspec

from .axis import Axis
from .growing import MICROSECONDS
from .stores.load import Load
from .stores.result import Result, Sample, summarize
from .stores.stage import Stage

ROUNDS = 3
UNIT = "us a message"
PREFIX = "growth by "


class Growth(msgspec.Struct, frozen=True):
    """The results, and which loads were left out for the time that they would have taken."""

    results: tuple[Result, ...]
    left_out: tuple[str, ...]


def measure_growth(
    stage: Stage,
    axes: Sequence[Axis],
    measure: Callable[[Stage, Load], Sample],
    say: Callable[[str], None],
    *,
    clock: Callable[[], float] = time.monotonic,
) -> Growth:
    """Measure the loads of each axis in rounds, as long as the axis's time allows. Raises BenchmarkFailed.

    The first round goes from the smallest load to the largest. A load that is expected to take longer than what is
    left of the time is left out of that round.
    """
    results: list[Result] = []
    left_out: list[str] = []
    for axis in axes:
        runs = _Runs(axis, clock)
        for number, load in itertools.product(range(ROUNDS), axis.loads):
            if not runs.has_time_for(load):
                left_out += [runs.why_not(load)] if number == 0 else []
                continue
            say(f"growth, round {number + 1} of {ROUNDS}: {axis.value(load):,} {axis.name}")
            runs.run(load, lambda load: measure(stage, load))
        results += runs.results()
    return Growth(tuple(results), tuple(left_out))


class _Runs:
    """Those of an axis: what they gave, how long they took, and how long the next one would."""

    def __init__(self, axis: Axis, clock: Callable[[], float]) -> None:
        self._axis, self._clock = axis, clock
        self._deadline = clock() + axis.seconds
        self._samples: dict[Load, list[Sample]] = {}
        self._seconds: dict[Load, float] = {}

    def run(self, load: Load, measure: Callable[[Load], Sample]) -> None:
        began = self._clock()
        self._samples.setdefault(load, []).append(measure(load))
        self._seconds[load] = self._clock() - began

    def results(self) -> list[Result]:
        """In the order of the axis."""
        return [
            summarize(PREFIX + self._axis.name, UNIT, load, taken) for load, taken in self._samples.items()
        ]

    def has_time_for(self, load: Load) -> bool:
        return self._expected(load) <= self._left()

    def why_not(self, load: Load) -> str:
        return (
            f"{self._axis.value(load):,} {self._axis.name} (about {self._expected(load):.0f} s, "
            f"{max(0, self._left()):.0f} of {self._axis.seconds:.0f} s were left)"
        )

    def _expected(self, load: Load) -> float:
        """As long as before or, for one that was not measured yet, as the one before it with more messages."""
        if load in self._seconds or not self._seconds:
            return self._seconds.get(load, 0.0)
        smaller, seconds = list(self._seconds.items())[-1]
        cost = self._samples[smaller][-1].value / MICROSECONDS
        return seconds + max(0, load.messages - smaller.messages) * cost

    def _left(self) -> float:
        return self._deadline - self._clock()
