"""Does anything grow? Computed from the samples.

The slope is the median of those between all pairs of points of the last two thirds (Theil and Sen), so that single
spikes, a compaction or a checkpoint, change little. Growth is that slope over the time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from statistics import median

import msgspec

from .record import Record
from .sample import Sample
from .series import Series, all_series

__all__ = ["Finding", "Verdict", "judge"]

FEWEST = 3  # points that make a slope
RATE_SHARE = 0.98


class Finding(msgspec.Struct, frozen=True):
    """One line: what, its median, how much it grew over the last two thirds, and how much it may (None: at will)."""

    name: str
    unit: str
    median: float
    growth: float
    allowed: float | None

    @property
    def kept(self) -> bool:
        """True when it grew no more than it may."""
        return self.allowed is None or self.growth <= self.allowed


class Verdict(msgspec.Struct, frozen=True):
    """``troubles`` are what went wrong otherwise."""

    findings: tuple[Finding, ...]
    troubles: tuple[str, ...]

    @property
    def kept(self) -> bool:
        """True when nothing grew and nothing went wrong."""
        return not self.troubles and all(finding.kept for finding in self.findings)


def judge(samples: Sequence[Sample], record: Record) -> Verdict:
    """The verdict on a soak."""
    late = [sample for sample in samples if sample.at >= record.plan.seconds / 3]
    found = (_finding(series) for series in all_series(late, record.plan))
    return Verdict(tuple(each for each in found if each), tuple(_troubles(samples, record)))


def _finding(series: Series) -> Finding | None:
    if len(series.points) < FEWEST:
        return None
    usual = median(value for _, value in series.points)
    time = series.points[-1][0] - series.points[0][0]
    allowed = max(series.bound.share * usual, series.bound.least) if series.bound else None
    return Finding(series.name, series.unit, usual, slope(series.points) * time, allowed)


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Units a second."""
    return median(
        (later[1] - earlier[1]) / (later[0] - earlier[0]) for earlier, later in combinations(points, 2)
    )


def _troubles(samples: Sequence[Sample], record: Record) -> Iterator[str]:
    plan = record.plan
    if record.failure:
        yield record.failure
    if record.sent != record.received:
        yield f"{record.sent} messages were sent and {record.received} received"
    if len(samples) < FEWEST:
        yield f"{len(samples)} samples are too few to tell anything"
        return
    rate = (samples[-1].sent - samples[0].sent) / (samples[-1].at - samples[0].at)
    if rate < RATE_SHARE * plan.rate:
        yield f"{rate:.0f} messages a second were sent instead of {plan.rate:g}"
    if samples[-1].at < plan.seconds - 2 * plan.sample_seconds:
        yield f"it ended after {samples[-1].at:.0f} s of {plan.seconds:.0f} s"
