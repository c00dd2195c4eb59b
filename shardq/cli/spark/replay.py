"""``shardq spark replay``."""

from __future__ import annotations

from datetime import datetime

import click
import msgspec

from shardq.cli.example import ExampleCommand
from shardq.cli.moment import past_moment
from shardq.cli.options import json_option, queue_argument
from shardq.cli.session import Session
from shardq.cli.spark.shared import master_option, show
from shardq.spark.jobs.place import Place
from shardq.spark.jobs.replay import replay
from shardq.spark.jobs.session import spark_session

__all__ = ["replay_command"]


@click.command("replay", cls=ExampleCommand, example="shardq spark replay orders orders-test --since 2h")
@queue_argument
@click.argument("target")
@click.option("--to-url", metavar="URL", help="The store of TARGET. Default: the same.")
@click.option(
    "--since", type=past_moment, metavar="MOMENT", help="Acked then or later: ISO 8601, or how long ago."
)
@click.option("--until", type=past_moment, metavar="MOMENT", help="Acked before.")
@click.option(
    "--run-id", metavar="NAME", help="The same to complete an interrupted replay of the same period."
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
    """Send copies of what was acked in a period."""
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
