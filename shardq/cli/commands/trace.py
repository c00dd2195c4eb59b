"""``shardq trace``: what became of a message."""

from __future__ import annotations

import click

from shardq.base.receipt import MessageId
from shardq.cli.command import LookCommand, Session, json_option
from shardq.cli.failures import NOT_FOUND
from shardq.cli.printing import note, print_columns, print_json
from shardq.cli.times import in_words
from shardq.core.tracing import Event

__all__ = ["trace"]


@click.command(cls=LookCommand, example="shardq trace orders:3:1:0197c8a2b4d07abc8123456789abcdef:0")
@click.argument("message_id", metavar="ID")
@json_option
@click.pass_context
def trace(ctx: click.Context, message_id: str, as_json: bool) -> None:
    """Show what became of a message.

    Shows its events in order, those of before and after moves too, as far as the queue keeps them: see --events of
    create. Times are in UTC, by the store's clock. Exit code 3 means that nothing is known of the message.
    """
    name = MessageId.parse(message_id).shard.queue
    queue = ctx.ensure_object(Session).queue(name)
    events = queue.trace(message_id)
    if as_json:
        for event in events:
            print_json(event)
    else:
        print_columns(_rows(message_id, events))
    if queue.settings.events is None:
        note(f"queue {name} keeps no events: `shardq alter {name} --events 7d` changes that")
    if not events:
        note(f"shardq: message_not_found: no event of message {message_id} is kept")
        ctx.exit(NOT_FOUND)


def _rows(message_id: str, events: list[Event]) -> list[tuple[str, str, str]]:
    """The events, each with its id where that is another than in the line before."""
    rows: list[tuple[str, str, str]] = []
    shown = message_id
    for event in events:
        moment = event.at.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        identity = "" if event.message_id == shown else f"{event.message_id} "
        rows.append((moment, event.kind, identity + _details(event)))
        shown = event.to or event.message_id
    return rows


def _details(event: Event) -> str:
    """What is known of it, in words."""
    number = None if event.delivery is None else f"delivery {event.delivery}"
    delay = None if not event.delay else f"for {in_words(event.delay)}"
    owner = None if event.owner is None else f"by {event.owner}"
    text = None if event.text is None else event.text.replace("\n", "\\n")
    to = None if event.to is None else f"as {event.to}"
    return ", ".join(filter(None, (owner, number, delay, to, text)))
