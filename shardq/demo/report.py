"""The end of a run in tables: the check line by line, the spread over the shards, and the figures."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from shardq.demo.check import CarrierLine, Check
from shardq.demo.delays import CarrierDelays
from shardq.demo.heat_map import heat_map
from shardq.demo.spread import Spread
from shardq.demo.summary import Summary

__all__ = ["print_report"]


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
