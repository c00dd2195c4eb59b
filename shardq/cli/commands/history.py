"""``shardq history``."""

from __future__ import annotations

from datetime import datetime

import click

from shardq.cli.example import ExampleCommand
from shardq.cli.message_view import row_of, view_of
from shardq.cli.moment import past_moment
from shardq.cli.options import codec_option, json_option, queue_argument
from shardq.cli.printing import many, note, print_json, print_line
from shardq.cli.session import Session
from shardq.queue import Queue

__all__ = ["history"]


@click.command(cls=ExampleCommand, example="shardq history orders --since 10m --replay --to orders-test")
@queue_argument
@click.option(
    "--since", type=past_moment, metavar="MOMENT", help="Acked then or later: ISO 8601, or how long ago."
)
@click.option("--until", type=past_moment, metavar="MOMENT", help="Acked before.")
@click.option("--replay", is_flag=True, help="Send copies of them instead of showing them.")
@click.option("--to", "target", metavar="QUEUE", help="With --replay: to this queue instead of the same.")
@codec_option
@json_option
@click.pass_obj
def history(
    session: Session,
    queue: str,
    since: datetime | None,
    until: datetime | None,
    replay: bool,
    target: str | None,
    codec: str,
    as_json: bool,
) -> None:
    """Show processed messages, or send them again.

    In the order in which they were acked. They are kept for the queue's history-retention.
    """
    if target is not None and not replay:
        raise click.UsageError("--to needs --replay.")
    found = session.queue(queue)
    if replay:
        _replay(found, since, until, target, as_json=as_json)
        return
    for message in found.history(since=since, until=until):
        if as_json:
            print_json(view_of(message, codec))
        else:
            print_line(row_of(message, codec))
    if found.settings.history_retention == 0:
        note(f"queue {queue} keeps no history: `shardq alter {queue} --history-retention 7d` changes that")


def _replay(
    queue: Queue, since: datetime | None, until: datetime | None, target: str | None, *, as_json: bool
) -> None:
    sent = queue.replay(since=since, until=until, to=target)
    if as_json:
        print_json({"replayed": sent, "to": target or queue.name})
    else:
        note(f"{many(sent, 'message')} sent again to queue {target or queue.name}")
