"""``shardq spark load``."""

from __future__ import annotations

import click
import msgspec

from shardq.cli.command import ExampleCommand, Session, json_option, queue_argument
from shardq.cli.printing import note
from shardq.cli.spark.options import master_option, option_pairs, pairs_of, show
from shardq.spark.jobs.load import FORMATS, load
from shardq.spark.jobs.place import Place
from shardq.spark.jobs.session import spark_session

__all__ = ["load_command"]


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
            Place(session.url, queue),
            path,
            format=file_format,
            body=body,
            read_options=pairs_of(read, "--read"),
            send_options=pairs_of(set, "--set"),
            say=note,
        )
    show(msgspec.structs.asdict(result), as_json=as_json)
