"""``shardq bench``."""

from __future__ import annotations

from collections.abc import Sequence

import click
from rich.console import Console

from shardq.bench.cases import GROUPS, cases_of, run_cases
from shardq.bench.load import FULL, QUICK
from shardq.bench.processes import BenchmarkFailed
from shardq.bench.report import Report, this_machine
from shardq.bench.stage import Stage
from shardq.bench.wording import as_table
from shardq.errors import InvalidSetting

__all__ = ["bench", "measure"]


@click.command()
@click.option("--url", help="The store to measure; by default a new SQLite file in a temporary folder.")
@click.option(
    "--only", "groups", multiple=True, type=click.Choice(tuple(GROUPS)), help="Only these measurements."
)
@click.option(
    "--rounds", type=click.IntRange(1, 100), help="How often each is repeated; 5, or 3 with --quick."
)
@click.option("--quick", is_flag=True, help="Fewer and smaller measurements, in about a minute.")
@click.option("--json", "as_json", is_flag=True, help="JSON instead of a table.")
def bench(url: str | None, groups: tuple[str, ...], rounds: int | None, quick: bool, as_json: bool) -> None:
    """Measure throughput, latency and how costs grow.

    Creates queues named bench-... and deletes them. Each figure is the median over the rounds, with the lowest and
    the highest round.
    """
    try:
        report = measure(url, groups, rounds, quick=quick)
    except InvalidSetting as error:
        raise click.UsageError(str(error)) from error
    except BenchmarkFailed as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        click.echo(report.encode())
    else:
        Console().print(as_table(report))


def measure(url: str | None, groups: Sequence[str], rounds: int | None, *, quick: bool = False) -> Report:
    """Run the measurements of some groups, or of all when none is given. Progress goes to stderr.

    Raises InvalidSetting for a URL that cannot be used, or BenchmarkFailed.
    """
    size = QUICK if quick else FULL
    results = run_cases(cases_of(size, groups), Stage(url), rounds or size.rounds, _say)
    return Report(machine=this_machine(), store=_store_name(url), quick=quick, results=tuple(results))


def _say(text: str) -> None:
    click.echo(text, err=True)


def _store_name(url: str | None) -> str:
    """The kind of store; neither hosts nor passwords belong in a report."""
    return "sqlite" if url is None else url.partition(":")[0]
