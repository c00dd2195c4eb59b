"""``shardq spark report``."""

from __future__ import annotations

from pathlib import Path

import click

from shardq.cli.command import ExampleCommand, Session, json_option, queue_argument
from shardq.cli.printing import note, print_columns, print_json
from shardq.cli.spark.options import master_option
from shardq.spark.jobs.place import Place
from shardq.spark.jobs.report import Report, report
from shardq.spark.jobs.session import spark_session

__all__ = ["report_command"]

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
        made = report(spark, Place(session.url, queue), output)
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
