"""``shardq spark migrate`` and ``shardq spark replay``: copies of messages in another queue."""

from __future__ import annotations

from datetime import datetime

import click
import msgspec

from shardq.cli.command import ExampleCommand, Session, json_option, queue_argument
from shardq.cli.printing import note
from shardq.cli.spark.options import master_option, show
from shardq.cli.times import since_option, until_option
from shardq.spark.jobs.migrate import migrate
from shardq.spark.jobs.place import Place
from shardq.spark.jobs.replay import replay
from shardq.spark.jobs.session import spark_session

__all__ = ["migrate_command", "replay_command"]

FAILURE = 1


@click.command(
    "migrate", cls=ExampleCommand, example="shardq spark migrate orders orders --to-url sqlite:///other.db"
)
@queue_argument
@click.argument("target")
@click.option("--to-url", metavar="URL", help="The store of TARGET. Default: the same.")
@click.option("--resume", is_flag=True, help="Continue an interrupted migration.")
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
    """Copy all waiting messages of a queue to another one, and compare both.

    Exit code 1 means that they differ. Pause the queue first. It is not changed.
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


@click.command("replay", cls=ExampleCommand, example="shardq spark replay orders orders-test --since 2h")
@queue_argument
@click.argument("target")
@click.option("--to-url", metavar="URL", help="The store of TARGET. Default: the same.")
@since_option
@until_option
@click.option(
    "--run-id", metavar="NAME", help="The same name completes an interrupted replay of the same period."
)
@master_option
@json_option
@click.pass_obj
def replay_command(
    session: Session,
    queue: str,
    target: str,
    to_url: str | None,
    since: datetime | None,
    until: datetime | None,
    run_id: str | None,
    master: str | None,
    as_json: bool,
) -> None:
    """Send copies of messages that were acked in a period."""
    with spark_session(master) as spark:
        result = replay(
            spark,
            Place(session.url, queue),
            Place(to_url or session.url, target),
            since=since.isoformat() if since else None,
            until=until.isoformat() if until else None,
            run_id=run_id,
        )
    show(msgspec.structs.asdict(result), as_json=as_json)
