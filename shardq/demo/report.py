"""The end of a run in tables: the check line by line, the spread over the shards, and the figures."""

from __future__ import annotations

from math import ceil

from rich.console import Console
from rich.table import Table
from rich.text import Text

from shardq.demo.check import CarrierDelays, CarrierLine, Check
from shardq.demo.summary import Spread, Summary

__all__ = ["heat_map", "print_report"]

SHADES = " ░▒▓█"
COLOURS = ("grey37", "steel_blue", "deep_sky_blue3", "turquoise2", "bright_yellow")
MOST_NUMBERS = 8  # with more shards than these, a cell is its shade only
MOST_CELLS = 32  # with more shards than these, several share a cell


def print_report(console: Console, summary: Summary, spread: Spread) -> None:
    """Print everything that is to be known of a run."""
    tables = {
        "Messages per shard: time shards down, shards across": heat_map(spread),
        "Checked against the data set": _check_table(summary.check),
        "Arrival delays in minutes, by carrier": _carrier_table(summary.check),
    }
    for title, table in tables.items():
        console.print(f"\n[bold]{title}[/]", soft_wrap=True)
        console.print(table)
    console.print()
    console.print(_figures(summary), soft_wrap=True, highlight=False)
    for plot in summary.plots:
        console.print(f"plot: {plot}", soft_wrap=True, highlight=False, markup=False)
    verdict = (
        "[green]✓ every check holds[/]" if summary.good else "[bold red]✗ something is off: see above[/]"
    )
    console.print(verdict)


def _mark(good: bool) -> str:
    return "[green]✓[/]" if good else "[bold red]✗[/]"


def _check_table(check: Check) -> Table:
    table = Table(box=None, padding=(0, 1))
    table.add_column("")
    table.add_column("")
    table.add_column("found", justify="right", no_wrap=True)
    table.add_column("expected", justify="right", no_wrap=True)
    table.add_column("", style="dim")
    for line in check.lines:
        table.add_row(_mark(line.good), line.what, f"{line.found:,}", f"{line.expected:,}", line.note)
    return table


def _carrier_table(check: Check) -> Table:
    table = Table(box=None, padding=(0, 1))
    columns = ("", "\ncarrier", "messages:\nflights", "\nmean", "\nmax", "file:\nflights", "\nmean", "\nmax")
    for index, name in enumerate(columns):
        table.add_column(name, justify="right" if index > 1 else "left", no_wrap=True)
    for line in check.carriers:
        table.add_row(_mark(line.good), line.carrier, *_cells(line))
    return table


def _cells(line: CarrierLine) -> tuple[str, ...]:
    return (*_delays(line.messages), *_delays(line.file))


def _delays(delays: CarrierDelays | None) -> tuple[str, str, str]:
    if delays is None:
        return "none", "", ""
    mean = "-" if delays.mean is None else f"{delays.mean:.3f}"
    longest = "-" if delays.longest is None else f"{delays.longest:,}"
    return f"{delays.flights:,}", mean, longest


def _figures(summary: Summary) -> str:
    latency = summary.latency
    lines = [
        f"{summary.messages:,} flights in {summary.seconds:.1f} s:",
        f"  {summary.sent_per_second:,.0f} sent/s, {summary.worked_per_second:,.0f} worked/s, "
        f"fullest shard {summary.spread:.3f} times the mean",
        f"  from send to ack: p50 {_ms(latency.p50)}, p95 {_ms(latency.p95)}, p99 {_ms(latency.p99)}",
        f"  {summary.redelivered:,} delivered again, {summary.seen_twice.total:,} worked twice",
    ]
    if summary.killed_at is not None and summary.back_at is not None:
        lines.append(
            f"  worker {summary.killed_worker} killed at {summary.killed_at:.1f} s, "
            f"its {summary.held_when_killed:,} messages were back at {summary.back_at:.1f} s"
        )
    return "\n".join(lines)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.1f} ms"


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
