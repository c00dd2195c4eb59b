"""Messages sent and acked per second, over time."""

from __future__ import annotations

from pathlib import Path

from matplotlib.ticker import FuncFormatter

from shardq.demo.plots.marks import mark_kill
from shardq.demo.plots.style import BLUE, ORANGE, caption, legend, new_figure, save, tidy
from shardq.demo.summary import Summary
from shardq.demo.timeline import Timeline

__all__ = ["plot_throughput"]


def plot_throughput(timeline: Timeline, summary: Summary, path: Path) -> Path:
    """Draw it."""
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
