"""Report: skew, backlog, age and latency per shard, as tables, pictures and one page."""

from __future__ import annotations

from pathlib import Path

import msgspec
from pyspark.sql import SparkSession

import shardq
from shardq.spark.jobs.job import QueueLocation
from shardq.spark.jobs.page import write_page
from shardq.spark.jobs.pictures import draw
from shardq.spark.jobs.survey import Survey, survey

__all__ = ["Report", "report"]


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
