"""The kill, marked on a time axis."""

from __future__ import annotations

from matplotlib.axes import Axes

from shardq.demo.plots.style import VERMILION
from shardq.demo.timeline import Timeline

__all__ = ["mark_kill"]

NARROW = 0.3  # of the axis: a lease that takes less has no room for a text on both of its ends


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
