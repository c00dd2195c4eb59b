"""How the messages were spread over the shards."""

from __future__ import annotations

from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from shardq.demo.plots.style import BLUE, INK, VERMILION, caption, new_figure, save, tidy
from shardq.demo.summary import Spread

__all__ = ["plot_shards"]

MOST_LABELS = 16  # of time shards
MOST_NUMBERS = 200  # cells; with more of them no numbers are written into the map


def plot_shards(spread: Spread, path: Path) -> Path:
    """Draw the messages of each shard as bars, and below them as a map of time shards and shards."""
    figure = new_figure(height=7.0)
    caption(
        figure,
        f"Spread evenly: the fullest shard has {spread.imbalance:.3f} times the mean"
        if spread.imbalance < 1.1
        else f"The fullest shard has {spread.imbalance:.2f} times the mean",
        f"{sum(spread.by_shard):,} messages sent   ·   {len(spread.by_shard)} shards, mean {spread.mean:,.0f}, "
        f"fullest {max(spread.by_shard):,}   ·   {len(spread.written)} of "
        f"{len(spread.messages)} time shards written",
    )
    _bars(figure.add_axes((0.11, 0.62, 0.75, 0.24)), spread)
    _map(figure, figure.add_axes((0.11, 0.09, 0.75, 0.45)), spread)
    return save(figure, path)


def _bars(axes: Axes, spread: Spread) -> None:
    shards = range(len(spread.by_shard))
    axes.bar(shards, spread.by_shard, color=BLUE, width=0.8)
    axes.axhline(spread.mean, color=VERMILION, linewidth=1.6, linestyle=(0, (4, 2)))
    axes.annotate(
        f"mean\n{spread.mean:,.0f}",
        (1.0, spread.mean),
        xycoords=("axes fraction", "data"),
        xytext=(6, 0),
        textcoords="offset points",
        va="center",
        fontsize=9.5,
        color=VERMILION,
    )
    axes.set_xlim(-0.5, len(spread.by_shard) - 0.5)
    axes.set_ylabel("messages per shard")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_locator(MaxNLocator(16, integer=True))
    tidy(axes)


def _map(figure: Figure, axes: Axes, spread: Spread) -> None:
    colours = matplotlib.colormaps["Blues"].with_extremes(under="#F2F2F2")
    rows = [spread.messages[time_shard] for time_shard in spread.written]
    image = axes.imshow(rows, cmap=colours, aspect="auto", vmin=1)
    axes.set_xlabel("shard")
    axes.set_ylabel("time shard")
    axes.xaxis.set_major_locator(MaxNLocator(16, integer=True))
    every = max(1, len(rows) // MOST_LABELS)
    axes.set_yticks(range(0, len(rows), every), [str(number) for number in spread.written[::every]])
    tidy(axes)
    axes.grid(visible=False)
    bar = figure.colorbar(image, cax=figure.add_axes((0.885, 0.09, 0.018, 0.45)))
    bar.ax.tick_params(labelsize=9)
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    bar.outline.set_visible(False)
    bar.set_label("messages", color=INK)
    if len(rows) * len(spread.by_shard) <= MOST_NUMBERS:
        _numbers(axes, rows)


def _numbers(axes: Axes, rows: list[list[int]]) -> None:
    most = max(max(row) for row in rows)
    for time_shard, row in enumerate(rows):
        for shard, count in enumerate(row):
            colour = "white" if count > 0.6 * most else INK
            if count:
                axes.text(
                    shard, time_shard, f"{count:,}", ha="center", va="center", fontsize=8.5, color=colour
                )
