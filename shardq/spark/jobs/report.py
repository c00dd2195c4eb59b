"""A report on a queue: the backlog, the age and the durations of each shard, as one HTML page and pictures."""

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
from pyspark.sql import Column, DataFrame, SparkSession, functions

import shardq
from shardq.spark.jobs.job import QueueLocation

__all__ = ["Percentiles", "Report", "ShardReport", "Survey", "draw", "report", "survey", "write_page"]

_POINTS = (0.5, 0.95, 0.99)

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 1100px; margin: 2em auto; padding: 0 1em }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { text-align: right; padding: .2em .8em; border-bottom: 1px solid #ddd }
th:first-child, td:first-child { text-align: left }
img { max-width: 100% }
"""
COUNTS = ("ready", "delayed", "in_flight", "processed", "redelivered")

BLUE, ORANGE, GREEN, VERMILION, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#666666"
STATES = (("ready", BLUE), ("delayed", ORANGE), ("in_flight", GREEN))
MOST_LABELS = 24


class Percentiles(msgspec.Struct, frozen=True):
    """Seconds."""

    median: float
    p95: float
    p99: float
    most: float


class ShardReport(msgspec.Struct, frozen=True):
    """One shard."""

    shard: str
    time_shard: int
    number: int
    ready: int
    delayed: int
    in_flight: int
    processed: int
    redelivered: int  # of those that wait: not for the first time
    age: Percentiles | None  # of those that wait, since they were sent
    latency: Percentiles | None  # of those in the history: from due to acked

    @property
    def backlog(self) -> int:
        """Messages that are not acked."""
        return self.ready + self.delayed + self.in_flight


class Survey(msgspec.Struct, frozen=True):
    """A queue at one moment."""

    queue: str
    taken_at: str
    shards: tuple[ShardReport, ...]

    def total(self, column: str) -> int:
        """Add up a column."""
        return sum(getattr(shard, column) for shard in self.shards)

    @property
    def skew(self) -> float | None:
        """The backlog of the fullest concurrency shard, by the mean; None: there is no backlog."""
        loads = self.by_number("backlog")
        mean = sum(loads.values()) / len(loads) if loads else 0
        return max(loads.values()) / mean if mean else None

    def by_number(self, column: str) -> dict[int, int]:
        """Add up a column for each concurrency shard."""
        loads: dict[int, int] = {}
        for shard in self.shards:
            loads[shard.number] = loads.get(shard.number, 0) + getattr(shard, column)
        return dict(sorted(loads.items()))


def survey(spark: SparkSession, place: QueueLocation, *, taken_at: str) -> Survey:
    """Survey all shards of a queue; the work is done by the executors, shard by shard."""
    counts = place.read(spark, view="shards").drop("oldest", "age_seconds")
    waiting = place.read(spark, view="messages", includeBody="false")
    moment = functions.lit(taken_at).cast("timestamp")
    ages = _spread(waiting.withColumn("seconds", _seconds("enqueued_at", moment)), "age")
    again = waiting.groupBy("shard").agg(
        functions.sum((functions.col("deliveries") > 1).cast("int")).alias("redelivered")
    )
    done = place.read(spark, view="history", includeBody="false")
    latencies = _spread(done.withColumn("seconds", _seconds("enqueued_at", functions.col("due"))), "latency")
    rows = counts.join(ages, "shard", "left").join(latencies, "shard", "left").join(again, "shard", "left")
    found = [_report(row.asDict(recursive=True)) for row in rows.collect()]
    return Survey(
        place.queue, taken_at, tuple(sorted(found, key=lambda shard: (shard.time_shard, shard.number)))
    )


def _seconds(begin: str, end: Column) -> Column:
    return functions.greatest(functions.lit(0.0), end.cast("double") - functions.col(begin).cast("double"))


def _spread(rows: DataFrame, name: str) -> DataFrame:
    points = functions.percentile_approx("seconds", list(_POINTS), 10_000)
    # Four numbers, see Percentiles.
    return rows.groupBy("shard").agg(
        functions.concat(points, functions.array(functions.max("seconds"))).alias(name)
    )


def _report(row: dict[str, object]) -> ShardReport:
    for name in ("age", "latency"):
        row[name] = row[name] and dict(zip(Percentiles.__struct_fields__, row[name], strict=True))  # type: ignore[call-overload]
    row["redelivered"] = row["redelivered"] or 0
    return msgspec.convert(row, ShardReport)


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
    return (shard.shard, *counts, _in_words(shard.age), _in_words(shard.latency))


def _in_words(spread: Percentiles | None) -> str:
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
