"""Results as a table in the terminal."""

from __future__ import annotations

from rich.table import Table

from shardq.bench.report import Report
from shardq.bench.wording import figure, load_in_words, spread

__all__ = ["as_table"]


def as_table(report: Report) -> Table:
    """One line for each result."""
    table = Table(title=f"shardq bench: {report.store}", caption=str(report.machine))
    for heading, justify in (("measurement", "left"), ("load", "left"), ("median", "right")):
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    for heading in ("spread", "unit", "also"):
        table.add_column(heading)
    for result in report.results:
        also = ", ".join(f"{item.name} {figure(item.value)}" for item in result.figures)
        load = load_in_words(result.name, result.load)
        table.add_row(result.name, load, figure(result.median), spread(result), result.unit, also)
    return table
