"""Counts and durations by labels, as values that can be added up and sent to another process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

__all__ = ["BOUNDS", "Durations", "Key", "Measures"]

Key: TypeAlias = tuple[str, ...]
"""The kind of a measure, and the values of its labels."""

BOUNDS: Mapping[str, tuple[float, ...]] = {
    "wait": (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600, 21600, 86400),
    "processing": (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600),
    "operation": (
        0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
    ),
}  # fmt: skip
"""Upper bounds of the buckets of durations, in seconds. They never change: the processes of a pool are added up."""


class Durations(msgspec.Struct, frozen=True):
    """How many things took how long: a count for each bucket, and one above them; and all seconds together."""

    counts: tuple[int, ...]
    seconds: float

    def __add__(self, other: Durations) -> Durations:
        pairs = zip(self.counts, other.counts, strict=True)
        return Durations(tuple(one + another for one, another in pairs), self.seconds + other.seconds)


class Measures(msgspec.Struct, frozen=True):
    """The measures of one process or several, by kind and labels. They can be pickled."""

    numbers: dict[Key, int] = {}
    durations: dict[Key, Durations] = {}

    def __add__(self, other: Measures) -> Measures:
        return Measures(_added(self.numbers, other.numbers), _added(self.durations, other.durations))


def _added(one: Mapping[Key, Any], other: Mapping[Key, Any]) -> dict[Key, Any]:
    return {**one, **{key: one[key] + value if key in one else value for key, value in other.items()}}
