"""What a measurement gives: a sample for each round, and the result of all rounds."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import msgspec

from .load import Load

__all__ = ["Figure", "Result", "Sample", "summarize"]


class Figure(msgspec.Struct, frozen=True):
    """A further number beside the main one, such as a percentile."""

    name: str
    value: float


class Sample(msgspec.Struct, frozen=True):
    """One round: the main number, further ones, and points (x, y) where something was followed over time."""

    value: float
    figures: tuple[Figure, ...] = ()
    points: tuple[tuple[float, float], ...] = ()


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """All rounds of one measurement: the median, the lowest and the highest, and each round's value in order.

    ``figures`` are the medians of the further numbers; ``points`` are those of the last round.
    """

    name: str
    subject: str = "shardq"
    unit: str
    load: Load
    median: float
    low: float
    high: float
    rounds: tuple[float, ...]
    figures: tuple[Figure, ...] = ()
    points: tuple[tuple[float, float], ...] = ()

    def figure(self, name: str) -> float:
        """One of the further numbers; raises KeyError."""
        return {figure.name: figure.value for figure in self.figures}[name]


def summarize(
    name: str, unit: str, load: Load, samples: Sequence[Sample], *, subject: str = "shardq"
) -> Result:
    """The result of one or more rounds."""
    values = tuple(sample.value for sample in samples)
    return Result(
        name=name,
        subject=subject,
        unit=unit,
        load=load,
        median=median(values),
        low=min(values),
        high=max(values),
        rounds=values,
        figures=_medians(samples),
        points=samples[-1].points,
    )


def _medians(samples: Sequence[Sample]) -> tuple[Figure, ...]:
    names = [figure.name for figure in samples[0].figures]
    return tuple(
        Figure(name, median(sample.figures[place].value for sample in samples))
        for place, name in enumerate(names)
    )
