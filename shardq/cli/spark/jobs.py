"""``shardq spark``: the options of its jobs, and the jobs load and report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from shardq.cli.command import ExampleCommand, Session, json_option, queue_argument
from shardq.cli.printing import note, print_columns, print_json
from shardq.spark.jobs.files import FORMATS, load
from shardq.spark.jobs.job import QueueLocation, spark_session
from shardq.spark.jobs.report import Report, report

__all__ = [
    "checkpoint_option",
    "load_command",
    "master_option",
    "option_pairs",
    "pairs_of",
    "report_command",
    "show",
]

master_option = click.option(
    "--master", metavar="URL", help="Spark's master. Default: spark-submit's, or all cores of this computer."
)

checkpoint_option = click.option(
    "--checkpoint",
    metavar="DIR",
    required=True,
    help="Folder for the progress of the stream. The same folder continues it.",
)


def option_pairs(flag: str, text: str) -> Callable[[Any], Any]:
    """Make an option that takes NAME=VALUE and can be repeated."""
    return click.option(flag, metavar="NAME=VALUE", multiple=True, help=f"{text} May be repeated.")


def pairs_of(texts: Sequence[str], flag: str) -> dict[str, str]:
    """Return the values of such an option by name."""
    pairs = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise click.BadParameter(f"{text!r} is not an option: give NAME=VALUE.", param_hint=flag)
        pairs[name] = value
    return pairs


def show(result: Mapping[str, object], *, as_json: bool) -> None:
    """Show the result as JSON on stdout, or as a line on stderr."""
    if as_json:
        print_json(result)
    else:
        note(", ".join(f"{name.replace('_', ' ')}: {_text(value)}" for name, value in result.items()))


def _text(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


@click.command(
    "load",
    cls=ExampleCommand,
    example="shardq spark load orders orders.csv --format csv --read header=true --set runId=orders-1",
)
@queue_argument
@click.argument("path")
@click.option(
    "--format",
    "file_format",
    type=click.Choice(FORMATS),
    default="parquet",
    show_default=True,
    help="The format of the files.",
)
@click.option(
    "--body", metavar="SQL", help="The body of a row. Default: its column body, else the row as JSON."
)
@option_pairs("--read", "An option of Spark's reader of the files.")
@option_pairs("--set", "An option of the sink.")
@master_option
@json_option
@click.pass_obj
def load_command(
    session: Session,
    queue: str,
    path: str,
    file_format: str,
    body: str | None,
    read: tuple[str, ...],
    set: tuple[str, ...],  # noqa: A002 - named by its option
    master: str | None,
    as_json: bool,
) -> None:
    """Send every row of files as a message."""
    with spark_session(master) as spark:
        result = load(
            spark,
            QueueLocation(session.url, queue),
            path,
            format=file_format,
            body=body,
            read_options=pairs_of(read, "--read"),
            send_options=pairs_of(set, "--set"),
            say=note,
        )
    show(msgspec.structs.asdict(result), as_json=as_json)


_FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command("report", cls=ExampleCommand, example="shardq spark report orders --output orders-report")
@queue_argument
@click.option(
    "--output",
    type=_FOLDER,
    default="shardq-report",
    show_default=True,
    metavar="DIR",
    help="Folder for the report.",
)
@master_option
@json_option
@click.pass_obj
def report_command(session: Session, queue: str, output: Path, master: str | None, as_json: bool) -> None:
    """Show skew, backlog, age and latency of each shard.

    Prints a table, and writes PNG pictures and an HTML page.
    """
    with spark_session(master) as spark:
        made = report(spark, QueueLocation(session.url, queue), output)
    if as_json:
        print_json(made)
    else:
        _print(made)
        note(f"see {made.page}")


def _print(made: Report) -> None:
    head = ("shard", "ready", "delayed", "in flight", "processed", "age s", "latency s")
    rows = [
        (
            shard.shard,
            shard.ready,
            shard.delayed,
            shard.in_flight,
            shard.processed,
            _median(shard.age),
            _median(shard.latency),
        )
        for shard in made.survey.shards
    ]
    print_columns([head, *rows])


def _median(spread: object) -> str:
    return "" if spread is None else f"{getattr(spread, 'median'):.3g}"  # noqa: B009
