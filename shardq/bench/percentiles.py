"""Percentiles of measured times."""

from __future__ import annotations

from collections.abc import Sequence

from shardq.bench.result import Figure, Sample

__all__ = ["PERCENTILES", "latencies"]

PERCENTILES = (50.0, 90.0, 99.0, 99.9, 100.0)


def latencies(seconds: Sequence[float]) -> Sample:
    """A sample in milliseconds: the median, and the percentiles as figures ``p50`` .. ``p100``."""
    ordered = sorted(seconds)
    figures = tuple(Figure(f"p{share:g}", _at(ordered, share) * 1_000) for share in PERCENTILES)
    return Sample(figures[0].value, figures)


def _at(ordered: Sequence[float], share: float) -> float:
    """The smallest value that this share of the values does not exceed."""
    place = -(-len(ordered) * share // 100)
    return ordered[max(0, int(place) - 1)]
