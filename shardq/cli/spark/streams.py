"""``shardq spark``: jobs that copy messages or run on."""

from __future__ import annotations

from datetime import datetime

import click
import msgspec

from shardq.base.callables import function_named
from shardq.cli.command import ExampleCommand, Session, json_option, queue_argument
from shardq.cli.printing import note
from shardq.cli.spark.jobs import checkpoint_option, master_option, option_pairs, pairs_of, show
from shardq.cli.times import since_option, until_option
from shardq.spark.jobs.files import drain
from shardq.spark.jobs.job import QueueLocation, spark_session
from shardq.spark.jobs.moves import Transform, migrate, replay, transform

__all__ = ["drain_command", "migrate_command", "replay_command", "transform_command"]

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
            QueueLocation(session.url, queue),
            QueueLocation(to_url or session.url, target),
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
            QueueLocation(session.url, queue),
            QueueLocation(to_url or session.url, target),
            since=since.isoformat() if since else None,
            until=until.isoformat() if until else None,
            run_id=run_id,
        )
    show(msgspec.structs.asdict(result), as_json=as_json)


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
    help="Folder for the progress of the stream. The same folder continues it. Default: PATH/_checkpoint.",
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
    """Write messages that are due to Parquet files, and ack them.

    Works batch by batch. A batch is acked when its files are written.
    """
    with spark_session(master) as spark:
        result = drain(
            spark,
            QueueLocation(session.url, queue),
            path,
            checkpoint=checkpoint,
            select=select,
            stream_options=pairs_of(set, "--set"),
            say=note,
        )
    show(msgspec.structs.asdict(result), as_json=as_json)


@click.command(
    "transform",
    cls=ExampleCommand,
    example="shardq spark transform orders invoices --select id --select 'upper(cast(body as string)) as body' "
    "--checkpoint invoices.checkpoint",
)
@queue_argument
@click.argument("target")
@click.option("--to-url", metavar="URL", help="The store of TARGET. Default: the same.")
@click.option("--select", metavar="SQL", multiple=True, help="A column to send.")
@click.option("--where", metavar="SQL", help="Which messages to send. The others are only acked.")
@click.option("--function", metavar="MODULE:NAME", help="Instead: a Python function from a table to a table.")
@click.option("--continuous", is_flag=True, help="Continue until Ctrl-C.")
@checkpoint_option
@option_pairs("--set", "An option of the stream.")
@option_pairs("--set-target", "An option of the sink.")
@master_option
@json_option
@click.pass_obj
def transform_command(
    session: Session,
    queue: str,
    target: str,
    to_url: str | None,
    select: tuple[str, ...],
    where: str | None,
    function: str | None,
    continuous: bool,
    checkpoint: str,
    set: tuple[str, ...],  # noqa: A002 - named by its option
    set_target: tuple[str, ...],
    master: str | None,
    as_json: bool,
) -> None:
    """Receive messages, change them, and send them to another queue."""
    change = _change(select, where, function)
    with spark_session(master) as spark:
        result = transform(
            spark,
            QueueLocation(session.url, queue),
            QueueLocation(to_url or session.url, target),
            change,
            checkpoint=checkpoint,
            continuous=continuous,
            stream_options=pairs_of(set, "--set"),
            send_options=pairs_of(set_target, "--set-target"),
            say=note,
        )
    show(msgspec.structs.asdict(result), as_json=as_json)


def _change(select: tuple[str, ...], where: str | None, function: str | None) -> Transform:
    if function is not None:
        if select or where:
            raise click.UsageError("Give --function, or --select and --where.")
        return function_named("function", function)

    return lambda rows: (rows.where(where) if where else rows).selectExpr(*(select or ("*",)))
