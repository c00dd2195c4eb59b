"""The plots of cost against size."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from .axis import Axis
from .growing import CLAIM, RECEIVE, SEND
from .palette import ACCENTS, COUNT
from .stores.result import Result
from .stores.wording import figure as words

ROOM = 2  # above and below the figures, so that small differences look small


def growth(axis: Axis, results: list[Result]) -> Figure:
    """Microseconds a message, rates, and the time of a claim where claims are alike; a line for each store."""
    kinds = ["", SEND, RECEIVE, *([CLAIM] if axis.comparable else [])]
    figure = Figure(figsize=(3.6 * len(kinds), 3.3))
    for axes, kind in zip(figure.subplots(1, len(kinds)), kinds, strict=True):
        _lines(axes, axis, results, kind)
        axes.set(title=kind or "cost, us a message", xlabel=axis.name, xscale="log", yscale="log")
        low, high = axes.get_ylim()
        axes.set_ylim(low / ROOM, high * ROOM)
        axes.set_xticks(sorted({axis.value(result.load) for result in results}))
        axes.xaxis.set_major_formatter(COUNT)
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: words(value)))
        for each in (axes.xaxis, axes.yaxis):
            each.set_minor_formatter(NullFormatter())
    figure.axes[0].legend(frameon=False, fontsize=8.5)
    return figure


def _lines(axes: Axes, axis: Axis, results: list[Result], kind: str) -> None:
    for colour, subject in zip(ACCENTS, dict.fromkeys(result.subject for result in results), strict=False):
        line = [result for result in results if result.subject == subject]
        sizes = [axis.value(result.load) for result in line]
        values = [result.figure(kind) if kind else result.median for result in line]
        axes.plot(sizes, values, "o-", color=colour, label=subject)
