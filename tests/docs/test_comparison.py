"""The figures of the comparison, the README and the home page are those of the pages that measured them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT, name, rows

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


def quoted(page: Path) -> Iterator[tuple[str, Path]]:
    """The figures in the lists of a page, bold or in a link, each with the page of measurements beside it."""
    for line in page.read_text().splitlines():
        link = re.search(r"\]\(([^)#]*(?:benchmarks|design)[^)#]*)#", line)
        if link and line.startswith("- "):
            for text in re.findall(r"\*\*([^*]+)\*\*|\[([^]]+)\]", line):
                yield from (
                    (figure, page.parent / link[1]) for figure in re.findall(r"\d[\d,.]*\d", "".join(text))
                )


@pytest.mark.parametrize("page", [ROOT / "README.md", DOCS / "index.md"], ids=name)
def test_the_figures_that_a_page_quotes_are_on_the_page_that_it_links_to(page: Path) -> None:
    found = list(quoted(page))
    assert len(found) >= 3
    assert "`make bench`" in page.read_text()  # the command that measures them
    assert [figure for figure, source in found if figure not in source.read_text()] == []
