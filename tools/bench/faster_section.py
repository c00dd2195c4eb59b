"""The part of the page that says where another queue is faster than shardq, and why."""

from __future__ import annotations

from collections.abc import Iterator

from .cells import table, times
from .comparison import Comparison
from .rounds import KINDS
from .singles import SINGLE_KINDS
from .stores.result import Result
from .stores.wording import FIXED_RATE, figure

SECTION = """\
## Where another is faster

Queues whose median is better than that of every shardq on this page, the furthest ahead first.

{figures}"""


def faster_section(comparison: Comparison) -> str:
    """A line for each kind and each queue that is ahead in it; empty where none is."""
    rows = [row for kind in (*KINDS, *SINGLE_KINDS, FIXED_RATE) for row in _rows(comparison, kind)]
    headings = ["what", "queue", "why", "it", "shardq", "times as fast"]
    return SECTION.format(figures=table(headings, rows, numbers_from=3)) if rows else ""


def _rows(comparison: Comparison, kind: str) -> Iterator[list[str]]:
    whys = {promise.name: promise.wins for promise in comparison.promises}
    results = [result for result in comparison.peers if result.name == kind]
    ours = [result for result in results if result.subject in comparison.ours]
    if not ours:
        return
    best = min(ours, key=_slowness)
    for result in sorted(results, key=_slowness):
        ahead = _slowness(best) / _slowness(result)
        if ahead > 1:
            unit = " ms" if kind == FIXED_RATE else "/s"
            medians = [figure(each.median) + unit for each in (result, best)]
            yield [kind, result.subject, whys.get(result.subject, ""), *medians, times(ahead)]


def _slowness(result: Result) -> float:
    """What is better when it is less."""
    return result.median if result.name == FIXED_RATE else 1 / result.median
