"""How long messages took from send to ack, over time."""

from __future__ import annotations

from math import nan
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from shardq.demo.plots.marks import mark_kill
from shardq.demo.plots.style import BLUE, GREEN, PURPLE, caption, legend, new_figure, save, tidy
from shardq.demo.timeline import Latency, Timeline

__all__ = ["plot_latency"]

COARSE, FINE = (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)  # within a power of ten
LINES = (("p99", PURPLE, "^"), ("p95", GREEN, "s"), ("p50", BLUE, "o"))


def plot_latency(timeline: Timeline, path: Path) -> Path:
    """Draw it, on a logarithmic scale."""
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
