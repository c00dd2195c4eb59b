"""The pictures of a report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from shardq.spark.jobs.survey import Percentiles, ShardReport, Survey

__all__ = ["draw"]

BLUE, ORANGE, GREEN, VERMILION, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#666666"
STATES = (("ready", BLUE), ("delayed", ORANGE), ("in_flight", GREEN))
MOST_LABELS = 24


def draw(survey: Survey, folder: Path) -> list[Path]:
    """Draw what there is to draw; returns the files."""
    files = [_skew(survey, folder / "skew.png"), _backlog(survey, folder / "backlog.png")]
    for name, title in (
        ("age", "Age of waiting messages"),
        ("latency", "From sent to acked, of the history"),
    ):
        shards = [shard for shard in survey.shards if getattr(shard, name) is not None]
        if shards:
            files.append(_seconds(shards, name, title, folder / f"{name}.png"))
    return files


def _skew(survey: Survey, path: Path) -> Path:
    figure, axes = _new("Backlog by concurrency shard" + _said(survey))
    bottom = dict.fromkeys(survey.by_number("backlog"), 0)
    for state, colour in STATES:
        loads = survey.by_number(state)
        axes.bar(list(loads), list(loads.values()), bottom=list(bottom.values()), color=colour, label=state)
        bottom = {number: bottom[number] + load for number, load in loads.items()}
    if bottom:
        mean = sum(bottom.values()) / len(bottom)
        axes.axhline(mean, color=VERMILION, linestyle="--", linewidth=1.4, label=f"mean {mean:,.0f}")
    axes.set_xlabel("shard")
    axes.set_ylabel("messages")
    axes.xaxis.set_major_locator(MaxNLocator(MOST_LABELS, integer=True))
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return _save(figure, path)


def _said(survey: Survey) -> str:
    return "" if survey.skew is None else f": the fullest has {survey.skew:.2f} times the mean"


def _backlog(survey: Survey, path: Path) -> Path:
    figure, axes = _new("Backlog by time shard and shard")
    times = sorted({shard.time_shard for shard in survey.shards})
    numbers = sorted({shard.number for shard in survey.shards})
    rows = [[0] * len(numbers) for _ in times]
    for shard in survey.shards:
        rows[times.index(shard.time_shard)][numbers.index(shard.number)] = shard.backlog
    if rows:
        colours = matplotlib.colormaps["Blues"].with_extremes(under="#F2F2F2")
        image = axes.imshow(rows, cmap=colours, aspect="auto", vmin=1)
        figure.colorbar(image, ax=axes, label="messages")
        axes.set_xticks(*_labels(numbers))
        axes.set_yticks(*_labels(times))
        axes.grid(visible=False)
    axes.set_xlabel("shard")
    axes.set_ylabel("time shard")
    return _save(figure, path)


def _labels(values: Sequence[int]) -> tuple[range, list[str]]:
    every = max(1, len(values) // MOST_LABELS)
    return range(0, len(values), every), [str(value) for value in values[::every]]


def _seconds(shards: Sequence[ShardReport], name: str, title: str, path: Path) -> Path:
    figure, axes = _new(title)
    places = range(len(shards))
    spreads: list[Percentiles] = [getattr(shard, name) for shard in shards]
    for field, colour, mark in (
        ("most", GREY, "_"),
        ("p99", VERMILION, "^"),
        ("p95", ORANGE, "s"),
        ("median", BLUE, "o"),
    ):
        axes.plot(
            places,
            [getattr(spread, field) for spread in spreads],
            mark,
            color=colour,
            label=field,
            markersize=5,
        )
    every = max(1, len(shards) // MOST_LABELS)
    names = [f"{shard.time_shard}:{shard.number}" for shard in shards]
    axes.set_xticks(list(places)[::every], names[::every], rotation=60, fontsize=8)
    axes.set_xlabel("time shard : shard")
    axes.set_ylabel("seconds")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return _save(figure, path)


def _new(title: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(9.6, 4.8), dpi=140, layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", fontsize=12, fontweight="bold")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#DDDDDD", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    return figure, axes


def _save(figure: Figure, path: Path) -> Path:
    figure.savefig(path)
    return path
