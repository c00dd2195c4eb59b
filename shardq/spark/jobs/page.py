"""A report as one HTML page that needs no other file."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path

from shardq.spark.jobs.survey import Percentiles, ShardReport, Survey

__all__ = ["write_page"]

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
