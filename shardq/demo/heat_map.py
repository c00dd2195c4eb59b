"""The spread over the shards as text."""

from __future__ import annotations

from math import ceil

from rich.table import Table
from rich.text import Text

from shardq.demo.spread import Spread

__all__ = ["heat_map"]

SHADES = " ░▒▓█"
COLOURS = ("grey37", "steel_blue", "deep_sky_blue3", "turquoise2", "bright_yellow")
MOST_NUMBERS = 8  # with more shards than these, a cell is its shade only
MOST_CELLS = 32  # with more shards than these, several share a cell


def heat_map(spread: Spread) -> Table:
    """A row for each time shard that was written, a column for each shard; the darker, the more messages."""
    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column("", justify="right", style="dim", no_wrap=True)
    if len(spread.by_shard) <= MOST_NUMBERS:
        _with_numbers(table, spread)
    else:
        _shades_only(table, spread)
    return table


def _with_numbers(table: Table, spread: Spread) -> None:
    for shard in range(len(spread.by_shard)):
        table.add_column(str(shard), justify="right", no_wrap=True)
    table.add_column("all", justify="right", style="bold", no_wrap=True)
    most = max(max(row) for row in spread.messages)
    for time_shard in spread.written:
        row = spread.messages[time_shard]
        cells = [_shade(count, most, f"{count:,}") for count in row]
        table.add_row(str(time_shard), *cells, f"{sum(row):,}")
    table.add_row("", *(f"{count:,}" for count in spread.by_shard), f"{sum(spread.by_shard):,}")


def _shades_only(table: Table, spread: Spread) -> None:
    together = ceil(len(spread.by_shard) / MOST_CELLS)
    shared = f", {together} in a cell" if together > 1 else ""
    table.add_column(f"0 to {len(spread.by_shard) - 1}{shared}", no_wrap=True)
    table.add_column("all", justify="right", style="bold", no_wrap=True)
    rows = {time_shard: _grouped(spread.messages[time_shard], together) for time_shard in spread.written}
    most = max(max(row) for row in rows.values())
    for time_shard, row in rows.items():
        table.add_row(str(time_shard), Text("").join(_shade(count, most) for count in row), f"{sum(row):,}")


def _grouped(row: list[int], together: int) -> list[int]:
    return [sum(row[first : first + together]) for first in range(0, len(row), together)]


def _shade(count: int, most: int, number: str = "") -> Text:
    level = ceil((len(SHADES) - 1) * count / most)
    return Text(f"{SHADES[level]}{number}" if number else SHADES[level] * 2, style=COLOURS[level])
