"""``shardq peek``."""

from __future__ import annotations

import click

from shardq.cli.example import ExampleCommand
from shardq.cli.message_view import row_of, view_of
from shardq.cli.options import codec_option, json_option, queue_argument
from shardq.cli.printing import print_json, print_line
from shardq.cli.session import Session

__all__ = ["peek"]


@click.command(cls=ExampleCommand, example="shardq peek orders --limit 3 --json")
@queue_argument
@click.option("--limit", "-n", type=int, default=10, show_default=True, help="At most so many.")
@codec_option
@json_option
@click.pass_obj
def peek(session: Session, queue: str, limit: int, codec: str, as_json: bool) -> None:
    """Look at messages without receiving them.

    In any state, shard by shard: id, state, priority, deliveries, due time and the beginning of the body.
    """
    for message in session.queue(queue).peek(limit):
        if as_json:
            print_json(view_of(message, codec))
        else:
            print_line(row_of(message, codec))
