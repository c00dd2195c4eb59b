"""``shardq spark migrate``."""

from __future__ import annotations

import click
import msgspec

from shardq.cli.example import ExampleCommand
from shardq.cli.options import json_option, queue_argument
from shardq.cli.printing import note
from shardq.cli.session import Session
from shardq.cli.spark.shared import master_option, show
from shardq.spark.jobs.migrate import migrate
from shardq.spark.jobs.place import Place
from shardq.spark.jobs.session import spark_session

__all__ = ["migrate_command"]

FAILURE = 1


@click.command(
    "migrate", cls=ExampleCommand, example="shardq spark migrate orders orders --to-url sqlite:///other.db"
)
@queue_argument
@click.argument("target")
@click.option("--to-url", metavar="URL", help="The store of TARGET. Default: the same.")
@click.option("--resume", is_flag=True, help="Go on with a migration that was interrupted.")
@master_option
@json_option
@click.pass_context
def migrate_command(
    ctx: click.Context,
    queue: str,
    target: str,
    to_url: str | None,
    resume: bool,
    master: str | None,
    as_json: bool,
) -> None:
    """Copy all that waits in a queue to another one, and compare both.

    Exit code 1 if they are not equal. Pause the queue first; it is left as it is.
    """
    session = ctx.ensure_object(Session)
    with spark_session(master) as spark:
        result = migrate(
            spark,
            Place(session.url, queue),
            Place(to_url or session.url, target),
            resume=resume,
            say=note,
        )
    show(msgspec.structs.asdict(result) | {"equal": result.equal}, as_json=as_json)
    ctx.exit(0 if result.equal else FAILURE)
