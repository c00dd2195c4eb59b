"""A report on a queue: one HTML page that needs no other file, and its pictures."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path

import matplotlib
import msgspec
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from pyspark.sql import SparkSession

import shardq
from shardq.spark.jobs.job import QueueLocation
from shardq.spark.jobs.survey import Percentiles, ShardReport, Survey, survey

__all__ = ["Report", "draw", "report", "write_page"]

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 1100px; margin: 2em auto; padding: 0 1em }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { text-align: right; padding: .2em .8em; border-bottom: 1px solid #ddd }
th:first-child, td:first-child { text-align: left }
img { max-width: 100% }
"""
COUNTS = ("ready", "delayed", "in_flight", "processed", "redelivered")


def write_page(survey: Survey, pictures: Sequence[Path], path: Path) -> Path:
    """Write the page."""
    title = f"Queue {survey.queue}"
    parts = [
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{escape(title)}</title><style>{STYLE}</style>",
        f"<h1>{escape(title)}</h1><p>{escape(survey.taken_at)}, {len(survey.shards)} shards in use.</p>",
        _table(("all shards", *COUNTS), [("", *(survey.total(name) for name in COUNTS))]),
        *(_picture(picture) for picture in pictures),
        "<h2>Shards</h2><p>Age and latency in seconds: median / 95 % / 99 % / most.</p>",
        _table(("shard", *COUNTS, "age", "latency"), [_row(shard) for shard in survey.shards]),
    ]
    path.write_text("\n".join(parts) + "</html>\n", encoding="utf-8")
    return path


def _row(shard: ShardReport) -> tuple[object, ...]:
    counts = (getattr(shard, name) for name in COUNTS)
    return (shard.shard, *counts, _seconds(shard.age), _seconds(shard.latency))


def _seconds(spread: Percentiles | None) -> str:
    if spread is None:
        return ""
    return " / ".join(f"{getattr(spread, name):,.3g}" for name in spread.__struct_fields__)


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    titles = "".join(f"<th>{escape(title.replace('_', ' '))}</th>" for title in head)
    lines = ("".join(f"<td>{escape(_cell(cell))}</td>" for cell in row) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"


def _cell(cell: object) -> str:
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


def _picture(path: Path) -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    return f"<p><img alt='{escape(path.stem)}' src='data:image/png;base64,{data}'></p>"


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
            files.append(_draw_seconds(shards, name, title, folder / f"{name}.png"))
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


def _draw_seconds(shards: Sequence[ShardReport], name: str, title: str, path: Path) -> Path:
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


class Report(msgspec.Struct, frozen=True):
    """A survey, and the files that show it."""

    survey: Survey
    page: str
    pictures: tuple[str, ...]
    table: str


def report(spark: SparkSession, place: QueueLocation, folder: Path) -> Report:
    """Write ``report.html``, ``report.json`` and PNG pictures into a folder. The queue may be in use."""
    with shardq.connect(place.url) as client:
        moment = client.now()
        client.queue(place.queue)
    found = survey(spark, place, taken_at=moment.isoformat())
    folder.mkdir(parents=True, exist_ok=True)
    pictures = draw(found, folder)
    page = write_page(found, pictures, folder / "report.html")
    table = folder / "report.json"
    table.write_bytes(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
    return Report(found, str(page), tuple(map(str, pictures)), str(table))
