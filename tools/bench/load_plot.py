"""The plot of latency against load."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from .comparison import Comparison
from .latency_section import loaded_results
from .load_latency import KEEPS_UP
from .palette import ACCENTS, COUNT
from .stores.result import Result

OTHERS = ("#64748b", "#0f766e", "#a16207", "#be185d", "#1d4ed8")  # other queues, dashed


def under_load(comparison: Comparison) -> Figure:
    """Median and 99th percentile by rate, a line for each queue; a cross where it no longer keeps up."""
    figure = Figure(figsize=(13, 4.6))
    lines = loaded_results(comparison)
    for axes, mark in zip(figure.subplots(1, 2, sharey=True), ("p50", "p99"), strict=True):
        for line, (colour, style) in zip(lines, _looks(lines), strict=True):
            _draw(axes, line, mark, colour, style)
        axes.set(title=f"{mark} from send to receive", xscale="log", yscale="log")
        axes.set_xlabel("messages sent singly per second (log scale); x no longer keeps up")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(COUNT)
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 3)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        for each in (axes.xaxis, axes.yaxis):
            each.set_minor_formatter(NullFormatter())
    figure.axes[0].set_ylabel("milliseconds (log scale)")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside right upper", fontsize=8.5)
    return figure


def _looks(lines: list[list[Result]]) -> list[tuple[str, str]]:
    ours, others = iter(ACCENTS), iter(OTHERS)
    return [
        (next(ours), "-") if line[0].subject.startswith("shardq") else (next(others), "--") for line in lines
    ]


def _draw(axes: Axes, line: list[Result], mark: str, colour: str, style: str) -> None:
    rates, values = [each.load.rate for each in line], [each.figure(mark) for each in line]
    axes.plot(rates, values, style, color=colour, label=line[0].subject, linewidth=1.5)
    for rate, value, each in zip(rates, values, line, strict=True):
        keeps_up = bool(each.figure(KEEPS_UP))
        axes.plot(rate, value, "o" if keeps_up else "x", color=colour, markersize=4 if keeps_up else 8)
