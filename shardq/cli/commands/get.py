"""``shardq get``."""

from __future__ import annotations

import click

from shardq.cli.example import ExampleCommand
from shardq.cli.failures import NOT_FOUND
from shardq.cli.message_view import body_text, view_of
from shardq.cli.options import codec_option, json_option
from shardq.cli.printing import note, print_json, print_line
from shardq.cli.session import Session
from shardq.receipt import MessageId

__all__ = ["get"]


@click.command(cls=ExampleCommand, example="shardq get orders:3:1:0197c8a2b4d07abc8123456789abcdef:0 --json")
@click.argument("message_id", metavar="ID")
@codec_option
@json_option
@click.pass_context
def get(ctx: click.Context, message_id: str, codec: str, as_json: bool) -> None:
    """Look at one message by its id.

    Prints its body, or with --json all there is to know. It can be in any state, processed included.
    """
    queue = ctx.ensure_object(Session).queue(MessageId.parse(message_id).shard.queue)
    message = queue.get(message_id)
    if message is None:
        note(f"shardq: message_not_found: message {message_id} is not stored")
        ctx.exit(NOT_FOUND)
    elif as_json:
        print_json(view_of(message, codec))
    else:
        print_line(body_text(message.body, codec))
