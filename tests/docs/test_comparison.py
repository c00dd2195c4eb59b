"""What the comparison says was measured stands in the benchmarks."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import DOCS, rows

MEASURED = (DOCS / "comparison.md").read_text().split("## Measured")[1]
COMPARED = [row for row in rows(MEASURED) if any(re.fullmatch(r"[\d,]+", cell) for cell in row)]


def median(cell: str) -> str:
    """A figure of the benchmarks without its range."""
    return cell.partition(" (")[0]


def measured(heading: str, queue: str) -> list[str]:
    """The row of a queue in the first table below a heading."""
    section = (DOCS / "benchmarks.md").read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return next(row for row in rows(section) if row[0] == queue)


@pytest.mark.parametrize("row", COMPARED, ids=lambda row: row[0])
def test_the_figures_of_a_queue_are_those_that_were_measured(row: list[str]) -> None:
    queue, durability, *figures = row
    throughput, latency = (
        measured("Beside other queues", queue),
        measured("Latency beside other queues", queue),
    )
    assert throughput[1] == durability
    assert figures == [*map(median, throughput[2:5]), median(latency[2])]


def test_every_store_is_compared_with_something() -> None:
    names = {row[0] for row in COMPARED}
    assert {"shardq (SQLite)", "shardq (Cassandra)", "shardq (MongoDB)"} < names
