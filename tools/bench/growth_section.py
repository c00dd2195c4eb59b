"""The part of the page that shows how costs grow."""

from __future__ import annotations

from .axis import Axis, axes
from .cells import table, with_spread
from .comparison import Comparison
from .growing import FIGURES
from .growth import PREFIX
from .stores.load import Load
from .stores.result import Result
from .stores.wording import figure

INTRODUCTION = """\
## Growth

Cost of a message, from the call of send to the ack, against one thing that grows. All messages are sent in bulk, then
claims are timed, then all are received and acked; each producer and consumer is a process. Where nothing else is said,
bodies have 512 B, the queue has 8 shards, and there are one producer and one consumer. The queue has one time shard.
"""
SECTION = """\
### By {name}

![Cost by {name}]({folder}/{plot}.png)

{figures}"""


def growth_section(comparison: Comparison, folder: str) -> str:
    """Plots and tables; empty where growth was not measured."""
    grown = growth_of(comparison)
    if not grown:
        return ""
    sections = [
        SECTION.format(name=axis.name, folder=folder, plot=plot_name(axis), figures=_figures(axis, results))
        for axis, results in grown
    ]
    left_out = f"\nLeft out for the time: {'; '.join(comparison.left_out)}.\n" if comparison.left_out else ""
    return "\n".join([INTRODUCTION, *sections]) + left_out


def growth_of(comparison: Comparison) -> list[tuple[Axis, list[Result]]]:
    """The results of each axis that was measured."""
    found = ((axis, comparison.report.of(PREFIX + axis.name)) for axis in axes(quick=comparison.report.quick))
    return [(axis, results) for axis, results in found if results]


def plot_name(axis: Axis) -> str:
    return f"growth-{axis.name.replace(' ', '-')}"


def _figures(axis: Axis, results: list[Result]) -> str:
    counted = list(dict.fromkeys(each.name for result in results for each in result.figures))[len(FIGURES) :]
    rows = [
        [
            result.subject,
            f"{axis.value(result.load):,}",
            _otherwise(axis, result.load),
            with_spread(result),
            *(figure(result.figure(name)) for name in FIGURES),
            *(_count(result, name) for name in counted),
        ]
        for result in results
    ]
    headings = ["store", axis.name, "messages and claims", "us a message", *FIGURES, *counted]
    return table(headings, rows)


def _count(result: Result, name: str) -> str:
    """How often the server counted it; nothing where it does not count it."""
    return next((f"{each.value:,.0f}" for each in result.figures if each.name == name), "")


def _otherwise(axis: Axis, load: Load) -> str:
    words = [] if axis.name == "messages" else [f"{load.messages:,}"]
    return ", ".join([*words, f"claims of {load.batch}"])
