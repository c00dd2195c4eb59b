"""All pictures of a run."""

from __future__ import annotations

from pathlib import Path

from shardq.demo.plots.latency import plot_latency
from shardq.demo.plots.shards import plot_shards
from shardq.demo.plots.throughput import plot_throughput
from shardq.demo.spread import Spread
from shardq.demo.summary import Summary
from shardq.demo.timeline import Timeline

__all__ = ["draw_all"]


def draw_all(timeline: Timeline, spread: Spread, summary: Summary, folder: Path) -> list[Path]:
    """Draw them into a folder; returns their paths."""
    return [
        plot_throughput(timeline, summary, folder / "throughput.png"),
        plot_latency(timeline, folder / "latency.png"),
        plot_shards(spread, folder / "shards.png"),
    ]
