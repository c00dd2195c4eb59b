"""Numbers as the page shows them."""

from __future__ import annotations

from .stores.result import Result
from .stores.wording import figure, spread


def with_spread(result: Result | None) -> str:
    """Median and, smaller, the lowest and highest round."""
    if result is None:
        return "-"
    return f"**{figure(result.median)}**" + (f" ({spread(result)})" if spread(result) else "")


def times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.0f}x" if ratio >= 10 else f"{ratio:.2f}x"


def table(headings: list[str], rows: list[list[str]], numbers_from: int = 1) -> str:
    """A Markdown table whose columns from ``numbers_from`` on are right-aligned."""
    rule = ["---" if column < numbers_from else "---:" for column in range(len(headings))]
    return "".join(row(cells) + "\n" for cells in (headings, rule, *rows))


def row(cells: list[str]) -> str:
    """A row of a Markdown table, for a tool that prints one as soon as it is measured."""
    return f"| {' | '.join(cells)} |"
