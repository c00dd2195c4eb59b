"""``shardq spark drain``."""

from __future__ import annotations

import click
import msgspec

from shardq.cli.example import ExampleCommand
from shardq.cli.options import json_option, queue_argument
from shardq.cli.printing import note
from shardq.cli.session import Session
from shardq.cli.spark.shared import master_option, option_pairs, pairs_of, show
from shardq.spark.jobs.drain import drain
from shardq.spark.jobs.place import Place
from shardq.spark.jobs.session import spark_session

__all__ = ["drain_command"]


@click.command(
    "drain",
    cls=ExampleCommand,
    example="shardq spark drain orders out/ --select 'cast(body as string) as body' --select enqueued_at",
)
@queue_argument
@click.argument("path")
@click.option(
    "--checkpoint",
    metavar="DIR",
    help="Where Spark keeps how far it is; the same to go on. Default: PATH/_checkpoint.",
)
@click.option(
    "--select", metavar="SQL", multiple=True, help="A column of the files. Default: all of a message's."
)
@option_pairs("--set", "An option of the stream.")
@master_option
@json_option
@click.pass_obj
def drain_command(
    session: Session,
    queue: str,
    path: str,
    checkpoint: str | None,
    select: tuple[str, ...],
    set: tuple[str, ...],  # noqa: A002 - named by its option
    master: str | None,
    as_json: bool,
) -> None:
    """Write what is due to Parquet files, and ack it.

    Batch by batch: a batch is acked once its files are there.
    """
    with spark_session(master) as spark:
        result = drain(
            spark,
            Place(session.url, queue),
            path,
            checkpoint=checkpoint,
            select=select,
            stream_options=pairs_of(set, "--set"),
            say=note,
        )
    show(msgspec.structs.asdict(result), as_json=as_json)
