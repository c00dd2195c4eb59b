"""The pictures that a run leaves. matplotlib is imported in here only."""

from __future__ import annotations

from pathlib import Path

from shardq.demo.plots.shards import plot_shards
from shardq.demo.plots.times import plot_latency, plot_throughput
from shardq.demo.summary import Spread, Summary
from shardq.demo.timeline import Timeline

__all__ = ["draw_all"]


def draw_all(timeline: Timeline, spread: Spread, summary: Summary, folder: Path) -> list[Path]:
    """Draw them into a folder; returns their paths."""
    return [
        plot_throughput(timeline, summary, folder / "throughput.png"),
        plot_latency(timeline, folder / "latency.png"),
        plot_shards(spread, folder / "shards.png"),
    ]
