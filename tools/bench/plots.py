"""The plots of the pages of benchmarks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from .axis import Axis
from .comparison import Comparison
from .growing import CLAIM, RECEIVE, SEND
from .growth_section import growth_of, plot_name
from .latency_section import PLOT, UNDER_LOAD, latency_results, loaded_results
from .load_latency import KEEPS_UP
from .palette import ACCENTS, COUNT, OTHERS, OURS, STYLE, log_ticks
from .rounds import BULK_SEND, SINGLE_SEND
from .rounds import RECEIVE as BULK_RECEIVE
from .stores.result import Result
from .stores.wording import figure as words

USUAL_BYTES = 512
DASHED = ("#64748b", "#0f766e", "#a16207", "#be185d", "#1d4ed8")  # other queues
ROOM = 2  # above and below the figures, so that small differences look small
LEFT_OF_IT: dict[str, Any] = {"textcoords": "offset points", "ha": "right", "va": "center", "fontsize": 8.5}


def draw_all(comparison: Comparison, folder: Path) -> None:
    """One PNG for each plot of which there are figures."""
    with mpl.rc_context(STYLE):
        for name, draw in plots_of(comparison).items():
            draw(comparison).savefig(folder / f"{name}.png", metadata={"Software": None})


def plots_of(comparison: Comparison) -> dict[str, Callable[[Comparison], Figure]]:
    """The plots that the run has figures for, by name."""
    first_words = {result.name.partition(" ")[0] for result in comparison.report.results}
    usual = {
        name: draw
        for name, needed, draw in (
            ("throughput", "", throughput),
            ("claims", "claim", claims),
            ("latency", "latency", latency),
            ("memory", "memory", memory),
        )
        if not needed or needed in first_words
    }
    beside = {PLOT: waiting} if latency_results(comparison) else {}
    if loaded_results(comparison):
        beside[UNDER_LOAD] = under_load
    return (
        usual | beside | {plot_name(axis): _growth(axis, results) for axis, results in growth_of(comparison)}
    )


def _growth(axis: Axis, results: list[Result]) -> Callable[[Comparison], Figure]:
    return lambda _: growth(axis, results)


def throughput(comparison: Comparison) -> Figure:
    """Bars of messages per second, on a log scale, with the lowest and the highest round."""
    names = [promise.name for promise in comparison.promises][::-1]
    figure = Figure(figsize=(11, 1 + 0.36 * len(names)))
    for axes, kind in zip(
        figure.subplots(1, 3, sharey=True), (BULK_SEND, BULK_RECEIVE, SINGLE_SEND), strict=True
    ):
        results = [result for name in names if (result := comparison.peer(name, kind))]
        _bars(axes, results)
        axes.set_title(kind)
        axes.set_xlabel("messages per second (log scale)")
    return figure


def _bars(axes: Axes, results: list[Result]) -> None:
    medians = [result.median for result in results]
    below = [result.median - result.low for result in results]
    above = [result.high - result.median for result in results]
    colours = [OURS if result.subject.startswith("shardq") else OTHERS for result in results]
    axes.barh(
        [result.subject for result in results],
        medians,
        color=colours,
        xerr=(below, above),
        ecolor="#0f172a",
        capsize=2.5,
    )
    for place, result in enumerate(results):
        axes.text(result.high * 1.15, place, f"{result.median:,.0f}", va="center", fontsize=8.5)
    axes.set_xscale("log")
    axes.set_xlim(min(result.low for result in results) / 3, max(result.high for result in results) * 8)
    axes.xaxis.set_major_formatter(COUNT)
    axes.tick_params(axis="y", length=0)


def waiting(comparison: Comparison) -> Figure:
    """A line for each queue from the median to the longest latency, with a dot at the 99th percentile."""
    results = latency_results(comparison)[::-1]
    figure = Figure(figsize=(9, 1 + 0.36 * len(results)))
    axes = figure.subplots()
    for place, result in enumerate(results):
        marks = [result.figure(name) for name in ("p50", "p99", "p100")]
        colour = OURS if result.subject.startswith("shardq") else OTHERS
        axes.plot(marks[::2], [place, place], color=colour, linewidth=1.5)
        for value, marker in zip(marks, ("o", "d", "|"), strict=True):
            axes.plot(value, place, marker, color=colour)
        axes.annotate(words(marks[0]), (marks[0], place), (-6, 0), **LEFT_OF_IT)
    axes.set_yticks(range(len(results)), [result.subject for result in results])
    axes.set(title="From send to receive in another process", xscale="log")
    axes.set_xlabel("milliseconds (log scale): o median, ♦ 99 %, | longest")
    log_ticks(axes.xaxis)
    axes.tick_params(axis="y", length=0)
    axes.margins(x=0.08)
    axes.set_ylim(-0.6, len(results) - 0.4)
    return figure


def claims(comparison: Comparison) -> Figure:
    """The time of a claim against the number of waiting messages."""
    figure = Figure(figsize=(7, 4))
    axes = figure.subplots()
    results = comparison.report.of("claim")
    for colour, batch in zip(ACCENTS, sorted({result.load.batch for result in results}), strict=False):
        line = [result for result in results if result.load.batch == batch]
        waiting = [result.load.backlog for result in line]
        axes.plot(waiting, [result.median for result in line], "o-", color=colour, label=f"claim of {batch}")
        lows, highs = [result.low for result in line], [result.high for result in line]
        axes.fill_between(waiting, lows, highs, color=colour, alpha=0.15, linewidth=0)
    axes.set(
        title="Time of a claim, by how much is waiting",
        ylabel="milliseconds",
        xlabel="messages waiting",
    )
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter(COUNT)
    axes.legend(frameon=False)
    return figure


def latency(comparison: Comparison) -> Figure:
    """Milliseconds by percentile."""
    figure = Figure(figsize=(7, 4))
    axes = figure.subplots()
    results = [result for result in comparison.report.results if result.name.startswith("latency")]
    several = len({result.subject for result in results}) > 1
    if several:  # otherwise too many lines
        results = [result for result in results if result.load.rate and result.load.body_bytes == USUAL_BYTES]
    for colour, result in zip(ACCENTS, results, strict=False):
        marks = [item.name for item in result.figures]
        axes.plot(
            marks,
            [item.value for item in result.figures],
            "o-",
            color=colour,
            label=_latency_label(result, several=several),
        )
    axes.set(
        title="From send to receive", ylabel="milliseconds (log scale)", xlabel="percentile", yscale="log"
    )
    log_ticks(axes.yaxis)
    axes.legend(frameon=False)
    return figure


def _latency_label(result: Result, *, several: bool) -> str:
    name = result.subject if several else result.name.removeprefix("latency ")
    return f"{name}: {result.load.rate:g}/s of {result.load.body_bytes:,} B" if result.load.rate else name


def memory(comparison: Comparison) -> Figure:
    """Megabytes of a consumer while it works."""
    figure = Figure(figsize=(7, 3.4))
    axes = figure.subplots()
    for result in comparison.report.of("memory of a consumer"):
        axes.plot([point[0] for point in result.points], [point[1] for point in result.points], color=OURS)
    axes.set(title="Memory of a consumer at work", ylabel="resident MB", xlabel="messages received and acked")
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter(COUNT)
    return figure


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
        axes.xaxis.set_minor_formatter(NullFormatter())
        log_ticks(axes.yaxis, FuncFormatter(lambda value, _: words(value)))
    figure.axes[0].legend(frameon=False, fontsize=8.5)
    return figure


def _lines(axes: Axes, axis: Axis, results: list[Result], kind: str) -> None:
    for colour, subject in zip(ACCENTS, dict.fromkeys(result.subject for result in results), strict=False):
        line = [result for result in results if result.subject == subject]
        sizes = [axis.value(result.load) for result in line]
        values = [result.figure(kind) if kind else result.median for result in line]
        axes.plot(sizes, values, "o-", color=colour, label=subject)


def under_load(comparison: Comparison) -> Figure:
    """Median and 99th percentile by rate, a line for each queue; a cross where it no longer keeps up."""
    figure = Figure(figsize=(13, 4.6))
    lines = loaded_results(comparison)
    for axes, mark in zip(figure.subplots(1, 2, sharey=True), ("p50", "p99"), strict=True):
        for line, (colour, style) in zip(lines, _styles(lines), strict=True):
            _rates(axes, line, mark, colour, style)
        axes.set(title=f"{mark} from send to receive", xscale="log", yscale="log")
        axes.set_xlabel("messages sent singly per second (log scale); x no longer keeps up")
        log_ticks(axes.xaxis, COUNT)
        log_ticks(axes.yaxis, at=(1, 3))
    figure.axes[0].set_ylabel("milliseconds (log scale)")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside right upper", fontsize=8.5)
    return figure


def _styles(lines: list[list[Result]]) -> list[tuple[str, str]]:
    ours, others = iter(ACCENTS), iter(DASHED)
    return [
        (next(ours), "-") if line[0].subject.startswith("shardq") else (next(others), "--") for line in lines
    ]


def _rates(axes: Axes, line: list[Result], mark: str, colour: str, style: str) -> None:
    rates, values = [each.load.rate for each in line], [each.figure(mark) for each in line]
    axes.plot(rates, values, style, color=colour, label=line[0].subject, linewidth=1.5)
    for rate, value, each in zip(rates, values, line, strict=True):
        keeps_up = bool(each.figure(KEEPS_UP))
        axes.plot(rate, value, "o" if keeps_up else "x", color=colour, markersize=4 if keeps_up else 8)
