"""What happened over time: messages per second, and how long they took from send to ack."""

from __future__ import annotations

from math import nan
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from shardq.demo.plots.style import (
    BLUE,
    GREEN,
    ORANGE,
    PURPLE,
    VERMILION,
    caption,
    legend,
    new_figure,
    save,
    tidy,
)
from shardq.demo.summary import Summary
from shardq.demo.timeline import Latency, Timeline

__all__ = ["plot_latency", "plot_throughput"]

COARSE, FINE = (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)  # within a power of ten
LINES = (("p99", PURPLE, "^"), ("p95", GREEN, "s"), ("p50", BLUE, "o"))
NARROW = 0.4  # of the axis: a lease that takes less has no room for a text on both of its ends


def plot_throughput(timeline: Timeline, summary: Summary, path: Path) -> Path:
    """Draw messages sent and acked per second."""
    figure = new_figure()
    caption(
        figure,
        f"{summary.messages:,} flights sent and worked in {summary.seconds:.1f} s",
        f"{summary.producers} producers: {summary.sent_per_second:,.0f} sent/s   ·   "
        f"{summary.workers} workers: {summary.worked_per_second:,.0f} acked/s   ·   steps of {timeline.step:g} s",
    )
    axes = figure.add_axes((0.1, 0.12, 0.79, 0.66))
    edges = [index * timeline.step for index in range(len(timeline.sent) + 1)]
    axes.stairs(timeline.sent, edges, fill=True, color=BLUE, alpha=0.15)
    axes.stairs(timeline.sent, edges, color=BLUE, linewidth=2.4, label="sent")
    axes.stairs(timeline.acked, edges, color=ORANGE, linewidth=2.4, label="acked")
    axes.set_xlim(0, len(timeline.sent) * timeline.step)
    axes.set_ylim(0, 1.08 * max(*timeline.sent, *timeline.acked, 1.0))
    axes.set_xlabel("time since the start (seconds)")
    axes.set_ylabel("messages per second")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    tidy(axes)
    mark_kill(axes, timeline)
    legend(axes)
    return save(figure, path)


def plot_latency(timeline: Timeline, path: Path) -> Path:
    """Draw the time from send to ack, on a logarithmic scale."""
    figure = new_figure()
    overall = timeline.overall
    caption(
        figure,
        f"Half of the flights are acked within {duration(overall.p50)} of being sent, "
        f"99 % within {duration(overall.p99)}",
        f"time from send to ack by when it was acked: percentiles of the messages in steps of {timeline.step:g} s",
    )
    axes = figure.add_axes((0.1, 0.12, 0.79, 0.66))
    axes.set_yscale("log")
    for name, colour, marker in LINES:
        _line(axes, timeline, name, colour, marker)
    _scales(axes, timeline)
    tidy(axes)
    mark_kill(axes, timeline)
    return save(figure, path)


def duration(seconds: float) -> str:
    """Seconds as people write them: 250 µs, 12 ms, 3.2 s."""
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.0f} ms" if seconds < 1 else f"{seconds:.2g} s"


def _line(axes: Axes, timeline: Timeline, name: str, colour: str, marker: str) -> None:
    moments = [nan if latency is None else latency.at for latency in timeline.latency]
    values = [nan if latency is None else _value(latency, name) for latency in timeline.latency]
    axes.plot(moments, values, color=colour, marker=marker, markersize=5, linewidth=2, label=name)


def _value(latency: Latency, name: str) -> float:
    return max(float(getattr(latency, name)), 1e-5)


def _scales(axes: Axes, timeline: Timeline) -> None:
    low, high = axes.get_ylim()
    axes.set_ylim(low / 1.2, high * 1.2)
    axes.set_xlim(0, (len(timeline.latency) + 0.25) * timeline.step)
    axes.set_xlabel("time since the start (seconds)")
    axes.set_ylabel("time from send to ack (log scale)")
    axes.yaxis.set_major_locator(LogLocator(subs=COARSE if high > 100 * low else FINE))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value)))
    legend(axes)


def mark_kill(axes: Axes, timeline: Timeline) -> None:
    """A line at the kill, a line where what was lost came back, and the lease between them; labels above the plot."""
    if timeline.killed_at is None:
        return
    killed, back = timeline.killed_at, timeline.back_at
    axes.axvline(killed, color=VERMILION, linewidth=1.6)
    _write(axes, killed, "worker killed", 1)
    if back is not None:
        start, end = axes.get_xlim()
        row = 2 if back - killed < NARROW * (end - start) else 1
        axes.axvspan(killed, back, color=VERMILION, alpha=0.06, linewidth=0)
        axes.axvline(back, color=VERMILION, linewidth=1.6, linestyle=(0, (4, 2)))
        _write(axes, back, "lease over, its messages are back", row)


def _write(axes: Axes, at: float, text: str, row: int) -> None:
    """Centre a text over a moment, but keep it within the plot."""
    start, end = axes.get_xlim()
    place = (at - start) / (end - start)
    axes.annotate(
        text,
        (at, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(0, 5 + 13 * (row - 1)),
        textcoords="offset points",
        ha="left" if place < 0.15 else "right" if place > 0.85 else "center",
        va="bottom",
        fontsize=9.5,
        color=VERMILION,
    )
